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

{{/* (root, component, suffix): of an object that holds gangs, with the labels and annotations that queues and schedulers want. */}}
{{- define "turnout.gangMetadata" -}}
{{- $root := index . 0 }}{{ $gangs := $root.Values.gangs -}}
name: {{ include "turnout.name" $root }}{{ index . 2 }}
labels:
  {{- include "turnout.labels" . | nindent 2 }}
  {{- with $gangs.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $gangs.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* (root, name in `images`, or a whole reference) */}}
{{- define "turnout.image" -}}
{{- $images := (index . 0).Values.images }}{{ $name := index . 1 -}}
{{- if has $name (list "turnout" "gang" "cpu" "worker") -}}
{{ with $images.registry }}{{ . }}/{{ end }}{{ index $images $name }}:{{ $images.tag | default (index . 0).Chart.AppVersion }}
{{- else }}{{ $name }}{{ end }}
{{- end }}

{{- define "turnout.gatewayUrl" -}}http://{{ include "turnout.name" . }}-gateway:{{ .Values.gateway.service.port }}{{- end }}

{{/* A model's name as a part of an object's name. */}}
{{- define "turnout.slug" -}}{{ . | lower | replace "." "-" | replace ":" "-" | replace "_" "-" | trunc 30 | trimSuffix "-" }}{{- end }}

{{/* (root, component, most pods that an eviction takes at once[, suffix]) */}}
{{- define "turnout.budget" -}}
{{- $root := index . 0 }}{{ $most := toString (index . 2) }}
{{- if $most }}
---
apiVersion: {{ ternary "policy/v1" "policy/v1beta1" (semverCompare ">=1.21-0" $root.Capabilities.KubeVersion.Version) }}
kind: PodDisruptionBudget
metadata:
  {{- include "turnout.metadata" (list $root (index . 1)) | nindent 2 }}
spec:
  maxUnavailable: {{ $most }}
  selector:
    matchLabels:
      {{- include "turnout.selector" (list $root (index . 1)) | nindent 6 }}
{{- end }}
{{- end }}
