{{/* Refuses values that make no sense, before anything is made of them. A name that the chart does not know is refused with the one
that was probably meant: JSON Schema could only say that it is unknown. */}}
{{- define "turnout.check" -}}
{{- include "turnout.checkNames" (list "" (omit .Values "global") (.Files.Get "names.json" | fromJson)) }}
{{- $models := include "turnout.models" . | fromJson }}{{ $workers := include "turnout.workers" . | fromJson }}
{{- range $name, $_ := .Values.gangs.models }}{{ if not (hasKey $models $name) }}{{ fail (printf "gangs.models.%s: there is no such model in `models`" $name) }}{{ end }}{{ end }}
{{- range $name, $model := $models }}
{{- if and (or $model.engine (eq $.Values.gangs.mode "worker")) (not $workers) }}
{{- fail (printf "workers: nobody would run %s: name a pool, as in\n  workers: {gpu: {gpus: 8, resources: {requests: {cpu: 16, memory: 128Gi}}}}\n%s" $name (ternary "Chat engines run in workers in every mode." "or let gangs be started otherwise (gangs.mode: pool, job or ray)." (not (empty $model.engine)))) }}
{{- end }}
{{- end }}
{{- if and (eq .Values.blobs.mode "s3") (not .Values.blobs.s3.url) }}{{ fail "blobs.s3.url: where do objects go? s3://bucket/prefix" }}{{ end }}
{{- end }}

{{/* (path, values, names): `names` has for each known name the names below it; null: anything may be there; "*" stands for every name.
A string says what has become of a former name. */}}
{{- define "turnout.checkNames" -}}
{{- $path := index . 0 }}{{ $names := index . 2 }}
{{- range $name, $value := index . 1 }}
{{- $where := printf "%s%s%s" $path (ternary "." "" (ne $path "")) $name }}
{{- if and (not (hasKey $names $name)) (not (hasKey $names "*")) }}
{{- $meant := include "turnout.nearest" (list $name (keys $names | sortAlpha)) }}
{{- fail (printf "%s: there is no such value%s" $where (ternary (printf "; did you mean %s%s%s?" $path (ternary "." "" (ne $path "")) $meant) "; the chart's README.md has all" (ne $meant ""))) }}
{{- end }}
{{- $below := get $names (ternary $name "*" (hasKey $names $name)) }}
{{- if kindIs "string" $below }}{{ fail (printf "%s is not a value any more: %s" $where $below) }}{{ end }}
{{- if and (kindIs "map" $below) (kindIs "map" $value) }}{{ include "turnout.checkNames" (list $where $value $below) }}{{ end }}
{{- end }}
{{- end }}

{{/* (name, known names): the one that has most pairs of letters in common with it; nothing if none has a good part of them. */}}
{{- define "turnout.nearest" -}}
{{- $given := lower (index . 0) }}{{ $best := "" }}{{ $most := 39 }}
{{- range $known := index . 1 }}
{{- $other := lower $known }}{{ $common := 0 }}
{{- range $at := until (int (sub (len $given) 1)) }}
{{- if contains (substr $at (int (add $at 2)) $given) $other }}{{ $common = add $common 1 }}{{ end }}
{{- end }}
{{- $share := div (mul 200 $common) (max 1 (sub (add (len $given) (len $other)) 2)) }}
{{- if gt (int $share) (int $most) }}{{ $best = $known }}{{ $most = $share }}{{ end }}
{{- end }}
{{- $best }}
{{- end }}
