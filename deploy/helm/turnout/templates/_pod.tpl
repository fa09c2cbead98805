{{/* The one shape of a pod. Each kind says what is its own as data; `pod` of the values and the kind's own values are laid over it
here, the same way for all. */}}

{{- define "turnout.podKeys" -}}
["labels","annotations","image","env","envFrom","resources","gpuResource","devices","nodeSelector","tolerations","affinity","topologySpreadConstraints","priorityClassName","runtimeClassName","schedulerName","volumes","volumeMounts","initContainers","sidecars","probes","maxUnavailable"]
{{- end }}

{{/* (root, values of a kind, …): what they say of pods over what `pod` says; the last wins. As JSON. */}}
{{- define "turnout.podOf" -}}
{{- $pod := deepCopy (index . 0).Values.pod }}{{ $keys := include "turnout.podKeys" . | fromJsonArray }}
{{- range $values := rest . }}
{{- range $key := $keys }}{{ if hasKey ($values | default dict) $key }}{{ $pod = mergeOverwrite $pod (dict $key (deepCopy (dict "v" (index $values $key))).v) }}{{ end }}{{ end }}
{{- end }}
{{- $pod | toJson }}
{{- end }}

{{/* A pod template, from a dict:
  root, component
  settings      the values that have a pod's shape, as a list; the last wins
  account       "" (the service's), computing, manager, bootstrap; "none": whoever makes the pod says it
  image         the name in `images` that its containers have
  containers    its own; the first is the one that does the work, and has the GPUs
  init          its own init containers
  volumes       its own
  labels, annotations, spec    what else is its own
  gpus          of the first container
  spread        whether pods of the component are spread over nodes
  blobs         whether it mounts the claim for objects */}}
{{- define "turnout.podTemplate" -}}
{{- $root := .root }}{{ $pod := include "turnout.podOf" (prepend .settings .root) | fromJson }}
{{- $image := include "turnout.image" (list .root ($pod.image | default .image)) }}
{{- $labels := merge (include "turnout.labels" (list .root .component) | fromYaml) (.labels | default dict) ($pod.labels | default dict) }}
{{- $annotations := merge (.annotations | default dict) ($pod.annotations | default dict) }}
{{- $spec := merge (.spec | default dict) (include "turnout.podRest" .root | fromYaml) }}
{{- $account := .account | default "" }}
{{- if ne $account "none" }}
{{- $_ := set $spec "serviceAccountName" (include "turnout.account" (list .root $account)) }}
{{- $_ := set $spec "automountServiceAccountToken" (has $account (list "manager" "bootstrap")) }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" "runtimeClassName" "schedulerName" }}
{{- with index $pod $key }}{{ $_ := set $spec $key . }}{{ end }}
{{- end }}
{{- if and .spread (not $pod.topologySpreadConstraints) }}
{{- $_ := set $spec "topologySpreadConstraints" (list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" (dict "matchLabels" (include "turnout.selector" (list .root .component) | fromYaml)))) }}
{{- end }}
{{- if and .blobs (eq .root.Values.blobs.mode "claim") }}
{{- $_ := set $labels "turnout/blobs" (include "turnout.name" .root) }}
{{- if not (has "ReadWriteMany" (include "turnout.accessModes" (list .root "blobs" .root.Values.blobs.claim) | fromJsonArray)) }}
{{- /* One node can mount it: so all of them have to be on that one. */}}
{{- $near := dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list (dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (dict "turnout/blobs" (include "turnout.name" .root)))))) }}
{{- $_ := set $spec "affinity" (merge ($spec.affinity | default dict) $near) }}
{{- end }}
{{- end }}
{{- $containers := list }}{{ $init := list }}
{{- range $number, $one := .containers }}
{{- $gpus := ternary ($.gpus | default 0 | int) 0 (eq $number 0) }}
{{- $containers = append $containers (include "turnout.container" (list $root $pod $image $one $gpus (ternary $pod.devices dict (eq $number 0))) | fromYaml) }}
{{- end }}
{{- range .init }}{{ $init = append $init (include "turnout.container" (list $root $pod $image . 0 dict) | fromYaml) }}{{ end }}
{{- range $pod.sidecars }}{{ $containers = append $containers (merge (deepCopy .) (include "turnout.containerSecurity" $root | fromYaml)) }}{{ end }}
{{- range $pod.initContainers }}{{ $init = append $init (merge (deepCopy .) (include "turnout.containerSecurity" $root | fromYaml)) }}{{ end }}
{{- $_ := set $spec "containers" $containers }}
{{- with $init }}{{ $_ := set $spec "initContainers" . }}{{ end }}
{{- with concat (.volumes | default list) ($pod.volumes | default list) }}{{ $_ := set $spec "volumes" . }}{{ end }}
{{- $metadata := dict "labels" $labels }}
{{- with $annotations }}{{ $_ := set $metadata "annotations" . }}{{ end }}
{{- dict "metadata" $metadata "spec" $spec | toYaml }}
{{- end }}

{{/* (root, the pod's settings, image, container, GPUs, devices): one of Turnout's own containers. GPUs and devices are limits. */}}
{{- define "turnout.container" -}}
{{- $root := index . 0 }}{{ $pod := index . 1 }}{{ $gpus := index . 4 }}
{{- $own := merge (deepCopy (index . 3)) (dict "image" (index . 2) "imagePullPolicy" $root.Values.images.pullPolicy) (include "turnout.containerSecurity" $root | fromYaml) }}
{{- $resources := mergeOverwrite (deepCopy ($own.resources | default dict)) (deepCopy ($pod.resources | default dict)) }}{{ $limits := dict }}
{{- if $gpus }}{{ $_ := set $limits $pod.gpuResource $gpus }}{{ end }}
{{- range $name, $count := index . 5 }}{{ $_ := set $limits $name $count }}{{ end }}
{{- if $limits }}{{ $_ := set $resources "limits" (mergeOverwrite ($resources.limits | default dict) $limits) }}{{ end }}
{{- with $resources }}{{ $_ := set $own "resources" . }}{{ end }}
{{- $env := $own.env | default list }}
{{- range $name, $value := $pod.env }}
{{- $env = append $env (ternary (dict "name" $name "valueFrom" $value) (dict "name" $name "value" (toString $value)) (kindIs "map" $value)) }}
{{- end }}
{{- with $env }}{{ $_ := set $own "env" . }}{{ end }}
{{- with concat ($own.envFrom | default list) ($pod.envFrom | default list) }}{{ $_ := set $own "envFrom" . }}{{ end }}
{{- with concat ($own.volumeMounts | default list) ($pod.volumeMounts | default list) }}{{ $_ := set $own "volumeMounts" . }}{{ end }}
{{- range $kind, $said := $pod.probes }}
{{- $name := printf "%sProbe" $kind }}
{{- with index $own $name }}{{ $_ := set $own $name (mergeOverwrite (deepCopy .) (deepCopy ($said | default dict))) }}{{ end }}
{{- end }}
{{- toYaml $own }}
{{- end }}

{{- define "turnout.podRest" -}}
enableServiceLinks: false # TURNOUT_PORT would be read as a setting
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . }}}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "turnout.containerSecurity" -}}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* (root, account): "" is of gateways, managers and Redis, which a cloud's identity for S3 is given to. Managers that make jobs and
the bootstrap have accounts of their own, which may call the API; those who compute have one that may nothing. */}}
{{- define "turnout.account" -}}
{{- $root := index . 0 }}{{ $account := index . 1 }}
{{- $given := index (dict "" $root.Values.accounts.service.name "computing" $root.Values.accounts.computing.name) $account }}
{{- $given | default (printf "%s%s" (include "turnout.name" $root) (ternary (printf "-%s" $account) "" (ne $account ""))) }}
{{- end }}

{{/* (name, key of the Secret, root): one variable. */}}
{{- define "turnout.secretEnv" -}}
- name: {{ index . 0 }}
  valueFrom: {secretKeyRef: {name: {{ include "turnout.secret" (index . 2) }}, key: {{ index . 1 }}}}
{{- end }}

{{/* What gateways and managers need to reach Redis and the objects; nobody else has it. The webhook secret is written last by the
bootstrap Job, so pods that name it start when there are keys. */}}
{{- define "turnout.env" -}}
{{- if eq .Values.redis.mode "builtin" -}}
{{ include "turnout.secretEnv" (list "TURNOUT_REDIS_PASSWORD" "redis-password" .) }}
{{- else -}}
- name: TURNOUT_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ required "redis.external.existingSecret" .Values.redis.external.existingSecret }}, key: {{ .Values.redis.external.urlKey }}}}
{{- end }}
{{ include "turnout.secretEnv" (list "TURNOUT_WEBHOOK_SECRET" "webhook-secret" .) }}
{{- end }}

{{- define "turnout.envFrom" -}}
{{- if eq .Values.blobs.mode "s3" }}{{ with .Values.blobs.s3.existingSecret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}{{ end }}
{{- end }}

{{/* Of gateways and managers. */}}
{{- define "turnout.mounts" -}}
{{ include "turnout.plainMounts" . }}
{{- include "turnout.blobsMount" . }}
{{- end }}

{{- define "turnout.blobsMount" }}
{{- if eq .Values.blobs.mode "claim" }}
- {name: blobs, mountPath: /var/lib/turnout-blobs}
{{- end }}
{{- end }}

{{- define "turnout.volumes" -}}
{{ include "turnout.plainVolumes" (list . "") }}
{{- include "turnout.blobsVolume" . }}
{{- end }}

{{- define "turnout.blobsVolume" }}
{{- if eq .Values.blobs.mode "claim" }}
- {name: blobs, persistentVolumeClaim: {claimName: {{ .Values.blobs.claim.existingClaim | default (printf "%s-blobs" (include "turnout.name" .)) }}}}
{{- end }}
{{- end }}

{{- define "turnout.plainMounts" -}}
- {name: config, mountPath: /etc/turnout, readOnly: true}
- {name: state, mountPath: /var/lib/turnout}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{/* (root, ending of the ConfigMap's name[, "claimed": the state is a claim's]) */}}
{{- define "turnout.plainVolumes" -}}
- {name: config, configMap: {name: {{ include "turnout.name" (index . 0) }}{{ index . 1 }}}}
{{- if lt (len .) 3 }}
- {name: state, emptyDir: {}}
{{- end }}
- {name: tmp, emptyDir: {}}
{{- end }}

{{/* Of workers and ranks. */}}
{{- define "turnout.computingMounts" -}}
{{ include "turnout.plainMounts" . }}
- {name: shm, mountPath: /dev/shm}
{{- if .Values.weights.enabled }}
- {name: weights, mountPath: {{ .Values.weights.mountPath }}, readOnly: true}
{{- end }}
{{- end }}

{{/* (root, size of /dev/shm): besides the plain ones. */}}
{{- define "turnout.computingVolumes" -}}
{{- $root := index . 0 -}}
- {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ index . 1 | default $root.Values.gangs.pod.shm }}}}
{{- if $root.Values.weights.enabled }}
- {name: weights, persistentVolumeClaim: {claimName: {{ $root.Values.weights.existingClaim | default (printf "%s-weights" (include "turnout.name" $root)) }}, readOnly: true}}
{{- end }}
{{- end }}

{{/* The workers' key as a file, of the Secret's items this one alone. */}}
{{- define "turnout.keyMount" -}}
- {name: key, mountPath: /var/run/turnout/key, readOnly: true}
{{- end }}
{{- define "turnout.keyVolume" -}}
- {name: key, secret: {secretName: {{ include "turnout.secret" . }}, items: [{key: worker-key, path: worker-key}]}}
{{- end }}

{{/* Whether the loop of the process lives: it touches the file every two seconds (`--alive-file`). A stopped process keeps its port. */}}
{{- define "turnout.aliveProbe" -}}
startupProbe: {exec: {command: [test, -e, /tmp/alive]}, periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 300}
livenessProbe: {exec: {command: [sh, -c, 'test -n "$(find /tmp/alive -mmin -0.25)"']}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 3{{ include "turnout.probeEnd" . }}}
{{- end }}

{{/* What hangs does not drain: it is killed soon, where Kubernetes lets a probe say so. */}}
{{- define "turnout.probeEnd" -}}
{{- if semverCompare ">=1.25-0" .Capabilities.KubeVersion.Version }}, terminationGracePeriodSeconds: 10{{ end }}
{{- end }}
