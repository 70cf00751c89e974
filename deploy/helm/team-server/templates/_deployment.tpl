{{- /* A deployment of servers with a role. Besides what each template has, it is given name, role, replicas, scaled and resources. */ -}}
{{- define "team-server.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels:
    {{- include "team-server.labels" . | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
spec:
  {{- if not .scaled }}
  replicas: {{ .replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "team-server.selector" . | nindent 6 }}
      app.kubernetes.io/component: {{ .role }}
  strategy:
    {{- if .Values.persistence.enabled }}
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
    {{- end }}
  template:
    metadata:
      labels:
        {{- include "team-server.selector" . | nindent 8 }}
        app.kubernetes.io/component: {{ .role }}
        {{- with .Values.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations:
        {{- if .Values.ports.metrics }}
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ .Values.ports.metrics | quote }}
        {{- end }}
        {{- with .Values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: team-server
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          # --watch reloads the configuration when Kubernetes has changed the files.
          args: [serve, -c, /config/team.yaml, --watch, --role, {{ .role }}]
          {{- with .Values.secretName }}
          envFrom:
            - secretRef: {name: {{ . }}}
          {{- end }}
          env:
            - name: TEAM_PUBLIC_URL
              value: {{ .Values.publicURL | default (printf "%s://%s:%v" (lower .Values.probeScheme) (include "team-server.host" .) .Values.ports.http) | quote }}
            - name: TEAM_PUBLIC_GRPC
              value: {{ .Values.publicGRPC | default (printf "%s:%v" (include "team-server.host" .) .Values.ports.grpc) | quote }}
            {{- with .Values.env }}{{ toYaml . | nindent 12 }}{{ end }}
          ports:
            {{- if ne .role "worker" }}
            - {name: http, containerPort: {{ .Values.ports.http }}}
            - {name: grpc, containerPort: {{ .Values.ports.grpc }}}
            {{- end }}
            {{- if .Values.ports.metrics }}
            - {name: metrics, containerPort: {{ .Values.ports.metrics }}}
            {{- end }}
          {{- $port := ternary "metrics" "http" (eq .role "worker") }}
          {{- $scheme := ternary "HTTP" .Values.probeScheme (eq .role "worker") }}
          startupProbe:
            httpGet: {path: /healthz, port: {{ $port }}, scheme: {{ $scheme }}}
            periodSeconds: 1
            failureThreshold: 120
          livenessProbe:
            httpGet: {path: /healthz, port: {{ $port }}, scheme: {{ $scheme }}}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          {{- if ne .role "worker" }}
          readinessProbe:
            httpGet: {path: /readyz, port: http, scheme: {{ .Values.probeScheme }}}
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 2
          {{- end }}
          resources: {{- toYaml .resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: config, mountPath: /config, readOnly: true}
            - {name: data, mountPath: /data}
            - {name: tmp, mountPath: /tmp}
            {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 12 }}{{ end }}
      volumes:
        - name: config
          configMap: {name: {{ include "team-server.name" . }}}
        - name: data
          {{- if .Values.persistence.enabled }}
          persistentVolumeClaim: {claimName: {{ include "team-server.name" . }}}
          {{- else }}
          emptyDir: {}
          {{- end }}
        - name: tmp
          emptyDir: {}
        {{- with .Values.extraVolumes }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- with .Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}
