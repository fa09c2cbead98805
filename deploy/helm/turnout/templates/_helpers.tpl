{{- define "turnout.name" -}}
{{- if contains "turnout" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-turnout" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "turnout.secret" -}}
{{ .Values.secrets.existingSecret | default (include "turnout.name" .) }}
{{- end }}

{{/* (root, component): what a component's pods are selected by. */}}
{{- define "turnout.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: turnout
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "turnout.labels" -}}
{{ include "turnout.selector" . }}
{{- $root := index . 0 }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{/* (root, component[, suffix]): a metadata block. */}}
{{- define "turnout.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "turnout.name" $root }}{{ if gt (len .) 2 }}{{ index . 2 }}{{ else }}-{{ index . 1 }}{{ end }}
labels:
  {{- include "turnout.labels" . | nindent 2 }}
{{- end }}

{{/* (root, name in `images`) */}}
{{- define "turnout.image" -}}
{{- $root := index . 0 -}}{{- $images := $root.Values.images -}}
image: {{ with $images.registry }}{{ . }}/{{ end }}{{ index $images (index . 1) }}:{{ $images.tag | default $root.Chart.AppVersion }}
imagePullPolicy: {{ $images.pullPolicy }}
{{- end }}

{{- define "turnout.gatewayUrl" -}}http://{{ include "turnout.name" . }}-gateway:{{ .Values.gateway.service.port }}{{- end }}

{{/* turnout.yaml as gateways and managers see it. */}}
{{- define "turnout.config" -}}
{{- $own := dict "host" "0.0.0.0" "port" 8000 }}
{{- if eq .Values.blobs.mode "s3" }}
{{- $_ := set $own "blobs" .Values.blobs.s3.url }}
{{- with .Values.blobs.s3.endpoint }}{{ $_ := set $own "blobs_endpoint" . }}{{ end }}
{{- else }}{{ $_ := set $own "blobs" "/var/lib/turnout-blobs" }}{{ if eq .Values.gangs.mode "ray" }}{{ $_ := set $own "blobs_shared" true }}{{ end }}{{ end }}
{{- if eq .Values.redis.mode "builtin" }}{{ $_ := set $own "redis_url" (printf "redis://%s-redis:6379/0" (include "turnout.name" .)) }}{{ end }}
{{- if eq .Values.gangs.mode "ray" }}
{{- /* Serve builds the application on pods that do not have the Secret; those that use Redis have its URL in a variable. */}}
{{- if ne .Values.redis.mode "builtin" }}{{ $_ := set $own "redis_url" "redis://in.the.secret" }}{{ end }}
{{- $_ := set $own "ray_gateway_url" (include "turnout.gatewayUrl" .) }}{{ $_ := set $own "ray_manager_labels" (dict "turnout/part" "head") }}
{{- end }}
{{- if eq (include "turnout.launches" .) "yes" }}{{ $gangs := dict }}
{{- range $model := include "turnout.videoModels" . | fromJsonArray }}
{{- $template := include "turnout.gangPod" (list $ $model "launcher") | fromYaml }}
{{- $_ := set $gangs $model (dict "pods" (include "turnout.pods" (list $ $model) | int) "template" $template) }}
{{- end }}
{{- if $gangs }}
{{- $job := .Values.gangs.job }}{{ $name := include "turnout.name" . }}
{{- $_ := set $own "kubernetes_jobs" (dict "kind" $job.kind "launcher" $name "owner" $name "gateway_url" (include "turnout.gatewayUrl" .) "deadline_s" $job.deadlineSeconds "ttl_s" $job.ttlSeconds "pending_s" $job.pendingSeconds "gangs" $gangs) }}
{{- end }}
{{- end }}
{{- mergeOverwrite $own (include "turnout.ownConfig" . | fromYaml) (deepCopy .Values.config) | toYaml }}
{{- end }}

{{/* turnout.yaml as workers and ranks see it: the settings that are theirs, and no other, so that no secret of the service can be
among them. */}}
{{- define "turnout.computingConfig" -}}
{{- $theirs := pick .Values.config "ca_file" "log_level" "log_quota_bytes" "state_quota_bytes" "metrics_auth" "traces_endpoint" "traces_sample" "stall_s" "step_timeout_s" "meeting_timeout_s" "collective_timeout_s" "drain_s" "checkpoint_steps" "checkpoint_s" "preview_steps" "worker_memory_bytes" "worker_engines" "worker_commands" "worker_weights_dirs" "worker_downloads" "allow_registered_commands" "vllm" "vllm_fork_server" "worker_environ" }}
{{- mergeOverwrite (include "turnout.ownConfig" . | fromYaml) (deepCopy $theirs) | toYaml }}
{{- end }}

{{/* What the chart sets for all pods: the drain, where weights are, the models. */}}
{{- define "turnout.ownConfig" -}}
{{- $own := dict "drain_s" .Values.gangs.drainSeconds }}{{ $models := dict }}
{{- if .Values.weights.enabled }}{{ $_ := set $own "worker_weights_dirs" (list .Values.weights.mountPath) }}{{ end }}
{{- range $name, $model := .Values.models }}
{{- $more := dict }}
{{- if not $model.engine }}
{{- $_ := set $more "runner" (index (dict "worker" "worker" "pool" "external" "job" "job" "ray" "ray") $.Values.gangs.mode) }}
{{- if include "turnout.launches" $ }}{{ $_ := set $more "max_replicas" $.Values.gangs.job.parallel }}{{ end }}
{{- end }}
{{- $_ := set $models $name (mergeOverwrite $more (deepCopy $model)) }}
{{- end }}
{{- if $models }}{{ $_ := set $own "models" $models }}{{ end }}
{{- toYaml $own }}
{{- end }}

{{/* (root, model): ranks of its gang; pods that they are on; ranks of one pod. */}}
{{- define "turnout.ranks" -}}{{- $m := index (index . 0).Values.models (index . 1) -}}{{ mul ($m.ulysses | default 1) ($m.cfg | default 1) }}{{- end }}
{{- define "turnout.pods" -}}{{ index (index . 0).Values.gangs.pods (index . 1) | default 1 }}{{- end }}
{{- define "turnout.ranksPerPod" -}}
{{- $ranks := include "turnout.ranks" . | int -}}{{- $pods := include "turnout.pods" . | int -}}
{{- if mod $ranks $pods }}{{ fail (printf "gangs.pods: %s has %d ranks, which are not spread evenly over %d pods" (index . 1) $ranks $pods) }}{{ end -}}
{{ div $ranks $pods }}
{{- end }}

{{/* Names of the video models, as JSON. */}}
{{- define "turnout.videoModels" -}}
{{- $names := list }}{{ range $name, $model := .Values.models }}{{ if not $model.engine }}{{ $names = append $names $name }}{{ end }}{{ end -}}
{{ $names | toJson }}
{{- end }}

{{/* A model's name as a part of an object's name. */}}
{{- define "turnout.slug" -}}{{ . | lower | replace "." "-" | replace ":" "-" | replace "_" "-" | trunc 30 | trimSuffix "-" }}{{- end }}

{{- define "turnout.containerSecurity" -}}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* (name, key of the Secret, root[, optional]): one variable. */}}
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

{{/* (root, ending of the ConfigMap's name) */}}
{{- define "turnout.plainVolumes" -}}
- {name: config, configMap: {name: {{ include "turnout.name" (index . 0) }}{{ index . 1 }}}}
- {name: state, emptyDir: {}}
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

{{/* (root, size of /dev/shm[, "service": with the service's configuration]) */}}
{{- define "turnout.computingVolumes" -}}
{{- $root := index . 0 -}}
{{ include "turnout.plainVolumes" (list $root (ternary "" "-computing" (gt (len .) 2))) }}
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

{{/* (root[, account]): the beginning of every pod's spec. Only managers and the bootstrap have an account that may call the API.
Those who compute have one that may nothing: a cloud's identity for S3 is given to accounts. No variables of other Services:
TURNOUT_PORT would be read as a setting. */}}
{{- define "turnout.podBase" -}}
{{- $root := index . 0 }}{{ $account := ternary (index . (sub (len .) 1)) "" (gt (len .) 1) -}}
serviceAccountName: {{ include "turnout.name" $root }}{{ with $account }}-{{ . }}{{ end }}
automountServiceAccountToken: {{ has $account (list "manager" "bootstrap") }}
{{ include "turnout.podRest" $root }}
{{- end }}

{{- define "turnout.podRest" -}}
enableServiceLinks: false
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

{{/* (nodeSelector and tolerations of `from`) */}}
{{- define "turnout.placing" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A pod template changes with what it reads. */}}
{{- define "turnout.configDigest" -}}{{ include "turnout.config" . | sha256sum | trunc 16 }}{{- end }}
{{- define "turnout.computingDigest" -}}{{ include "turnout.computingConfig" . | sha256sum | trunc 16 }}{{- end }}

{{- define "turnout.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "turnout.selector" . | nindent 8 }}
{{- end }}

{{/* (root, component): a budget that lets one pod at a time go. */}}
{{- define "turnout.budget" -}}
{{- $root := index . 0 -}}
apiVersion: {{ ternary "policy/v1" "policy/v1beta1" (semverCompare ">=1.21-0" $root.Capabilities.KubeVersion.Version) }}
kind: PodDisruptionBudget
metadata:
  {{- include "turnout.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "turnout.selector" . | nindent 6 }}
{{- end }}

{{/* (root, what `resources` has, GPUs, further devices): GPUs are limits. */}}
{{- define "turnout.resources" -}}
{{- $resources := deepCopy (index . 1) }}{{ $limits := dict }}
{{- with index . 2 }}{{ $_ := set $limits "nvidia.com/gpu" . }}{{ end }}
{{- range $name, $count := index . 3 }}{{ $_ := set $limits $name $count }}{{ end }}
{{- if $limits }}{{ $_ := set $resources "limits" (mergeOverwrite ($resources.limits | default dict) $limits) }}{{ end }}
{{- with $resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
