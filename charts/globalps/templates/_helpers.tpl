{{- /* Image of a program by digest, or by tag. */}}
{{- define "globalps.image" -}}
{{- $image := get .root.Values.images .name -}}
{{- $repository := $image.repository -}}
{{- if not $repository -}}
{{- $registry := required "there are no published images yet: set images.registry to the registry, with its path, that has the images globalps-controller and globalps-syncer, for example --set images.registry=registry.example.com/platform" .root.Values.images.registry -}}
{{- $repository = printf "%s/globalps-%s" $registry .name -}}
{{- end -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default .root.Chart.AppVersion }}
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

{{- /* How pods get the reference to the Secret of their namespace. It does not depend on the cluster, which is not there when a chart is
rendered offline: by default, what every supported release of Kubernetes can do. */}}
{{- define "globalps.attach" -}}
{{- ((.Values.globalPullSecret).imagePullSecrets).attach | default "ServiceAccounts" -}}
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
