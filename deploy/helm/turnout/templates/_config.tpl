{{/* The models, as JSON: those of the values, or the tiny ones that come with Turnout. */}}
{{- define "turnout.models" -}}
{{ .Values.models | default (.Files.Get "tiny-models.yaml" | fromYaml) | toJson }}
{{- end }}

{{/* The pools of workers, as JSON. Without models of one's own there is one on CPUs, for the tiny ones. */}}
{{- define "turnout.workers" -}}
{{- $cpu := dict "cpu" (dict "image" "cpu" "resources" (dict "requests" (dict "cpu" "500m" "memory" "2Gi"))) -}}
{{ .Values.workers | default (ternary dict $cpu (not (empty .Values.models))) | toJson }}
{{- end }}

{{/* Names of the video models, as JSON. */}}
{{- define "turnout.videoModels" -}}
{{- $names := list }}{{ range $name, $model := include "turnout.models" . | fromJson }}{{ if not $model.engine }}{{ $names = append $names $name }}{{ end }}{{ end -}}
{{ $names | toJson }}
{{- end }}

{{- define "turnout.launches" }}{{ if and (eq .Values.gangs.mode "job") (eq .Values.gangs.job.by "launcher") }}yes{{ end }}{{ end }}

{{/* (root, model): ranks of its gang; pods that they are on; ranks of one pod; GPUs of one pod. */}}
{{- define "turnout.ranks" -}}{{- $m := index (include "turnout.models" (index . 0) | fromJson) (index . 1) -}}{{ mul ($m.ulysses | default 1) ($m.cfg | default 1) }}{{- end }}
{{- define "turnout.pods" -}}{{ get (index (index . 0).Values.gangs.models (index . 1) | default dict) "pods" | default 1 }}{{- end }}
{{- define "turnout.ranksPerPod" -}}
{{- $ranks := include "turnout.ranks" . | int -}}{{- $pods := include "turnout.pods" . | int -}}
{{- if mod $ranks $pods }}{{ fail (printf "gangs.models.%s.pods: it has %d ranks, which are not spread evenly over %d pods" (index . 1) $ranks $pods) }}{{ end -}}
{{ div $ranks $pods }}
{{- end }}
{{- define "turnout.gpusPerPod" -}}
{{- $m := index (include "turnout.models" (index . 0) | fromJson) (index . 1) -}}
{{ ternary (include "turnout.ranksPerPod" .) "0" (eq ($m.device | default "cpu") "cuda") }}
{{- end }}

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
{{- $jobs := dict "kind" $job.kind "launcher" $name "owner" $name "gateway_url" (include "turnout.gatewayUrl" .) "deadline_s" $job.deadlineSeconds "ttl_s" $job.ttlSeconds "pending_s" $job.pendingSeconds "keep_s" $job.keepSeconds "gangs" $gangs }}
{{- range $key := list "labels" "annotations" }}{{ with index $.Values.gangs $key }}{{ $_ := set $jobs $key . }}{{ end }}{{ end }}
{{- $_ := set $own "kubernetes_jobs" $jobs }}
{{- end }}
{{- end }}
{{- mergeOverwrite $own (include "turnout.ownConfig" . | fromYaml) (deepCopy .Values.config) | toYaml }}
{{- end }}

{{/* turnout.yaml as workers and ranks see it: the settings that are theirs, and no other, so that no secret of the service can be
among them. */}}
{{- define "turnout.computingConfig" -}}
{{- $theirs := pick .Values.config "ca_file" "log_level" "log_quota_bytes" "state_quota_bytes" "metrics_auth" "traces_endpoint" "traces_sample" "stall_s" "step_timeout_s" "meeting_timeout_s" "collective_timeout_s" "drain_s" "checkpoint_steps" "checkpoint_s" "preview_steps" "worker_memory_bytes" "worker_engines" "worker_commands" "worker_weights_dirs" "worker_downloads" "allow_registered_commands" "vllm" "vllm_fork_server" "gang_fork_server" "model_pulls" "worker_environ" }}
{{- mergeOverwrite (include "turnout.ownConfig" . | fromYaml) (deepCopy $theirs) | toYaml }}
{{- end }}

{{/* What the chart sets for all pods: the drain, where weights are, the models. */}}
{{- define "turnout.ownConfig" -}}
{{- $own := dict "drain_s" .Values.gangs.drainSeconds }}{{ $models := dict }}
{{- if .Values.weights.enabled }}{{ $_ := set $own "worker_weights_dirs" (list .Values.weights.mountPath) }}{{ end }}
{{- range $name, $model := include "turnout.models" . | fromJson }}
{{- $more := dict }}
{{- if not $model.engine }}
{{- $_ := set $more "runner" (index (dict "worker" "worker" "pool" "external" "job" "job" "ray" "ray") $.Values.gangs.mode) }}
{{- if include "turnout.launches" $ }}{{ $_ := set $more "max_replicas" $.Values.gangs.job.parallel }}{{ end }}
{{- end }}
{{- $_ := set $models $name (mergeOverwrite $more (deepCopy $model)) }}
{{- end }}
{{- $_ := set $own "models" $models }}
{{- toYaml $own }}
{{- end }}

{{/* A pod template changes with what it reads. */}}
{{- define "turnout.configDigest" -}}{{ include "turnout.config" . | sha256sum | trunc 16 }}{{- end }}
{{- define "turnout.computingDigest" -}}{{ include "turnout.computingConfig" . | sha256sum | trunc 16 }}{{- end }}
