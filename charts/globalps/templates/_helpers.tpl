{{- /* Image of a program by digest, or by tag. */}}
{{- define "globalps.image" -}}
{{- $image := get .root.Values.images .name -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "globalps.pullSecrets" -}}
{{- with .Values.images.pullSecret }}
- name: {{ . }}
{{- end }}
{{- end -}}

{{- /* Not empty if pull secrets are delivered into namespaces, or were: `enabled: false` keeps the permissions to remove them. */}}
{{- define "globalps.inNamespaces" -}}
{{- if (.Values.globalPullSecret).imagePullSecrets }}true{{ end -}}
{{- end -}}

{{- /* How pods get the reference to the Secret of their namespace; by default as the API server allows. */}}
{{- define "globalps.attach" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- ((.Values.globalPullSecret).imagePullSecrets).attach | default (ternary "Admission" "ServiceAccounts" $served) -}}
{{- end -}}

{{- /* Name of the Secret in each namespace. */}}
{{- define "globalps.secretName" -}}
{{- if include "globalps.inNamespaces" . -}}
{{- .Values.globalPullSecret.imagePullSecrets.secretName | default "global-pull-secret" -}}
{{- else -}}
global-pull-secret
{{- end -}}
{{- end -}}

{{- /* The catalogs' pull secrets: names by namespace. */}}
{{- define "globalps.catalogs" -}}
{{- $catalogs := dict -}}
{{- range .Values.operators.secrets -}}
{{- $_ := set $catalogs .namespace (append (get $catalogs .namespace | default list) .name) -}}
{{- end -}}
{{- toYaml $catalogs -}}
{{- end -}}

{{- /* Labels of the chart's own objects. */}}
{{- define "globalps.labels" -}}
app.kubernetes.io/managed-by: globalps
app.kubernetes.io/name: globalps
{{- end -}}
