{{- define "team-server.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "team-server.worker" -}}
{{- printf "%s-worker" (include "team-server.name" .) -}}
{{- end -}}

{{- define "team-server.host" -}}
{{- printf "%s.%s" (include "team-server.name" .) .Release.Namespace -}}
{{- end -}}

{{- define "team-server.selector" -}}
app.kubernetes.io/name: team-server
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "team-server.labels" -}}
{{ include "team-server.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "team-server.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is empty; set it to the repository that has the image of team-server, such as --set image.repository=registry.example/team-server" -}}
{{- end -}}
{{- if and .Values.persistence.enabled (or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) (gt (int .Values.workers.replicas) 0)) -}}
{{- fail "persistence.enabled is for one server with a SQLite store; set replicas to 1, workers.replicas to 0 and autoscaling.enabled to false, or use a postgres:// store without persistence" -}}
{{- end -}}
{{- if and (gt (int .Values.workers.replicas) 0) (not .Values.ports.metrics) -}}
{{- fail "ports.metrics is 0, and workers answer health checks only where they serve metrics; set it, and server.metrics in config" -}}
{{- end -}}
{{- if not .Values.config -}}
{{- fail "config is empty; set it to the content of team.yaml, such as --set-file config=team.yaml" -}}
{{- end -}}
{{- end -}}
