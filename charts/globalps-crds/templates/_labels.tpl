{{- /* Generated: `make generate`. Labels of every object of the chart, with `commonLabels`. */}}
{{- define "globalps.labels" -}}
{{- $labels := dict -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $labels "app.kubernetes.io/name" "globalps" -}}
{{- $_ := set $labels "app.kubernetes.io/instance" .Release.Name -}}
{{- $_ := set $labels "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" "globalps" -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service -}}
{{- merge $labels (.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}
