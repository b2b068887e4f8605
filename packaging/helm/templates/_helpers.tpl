{{- define "windlass.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{- define "windlass.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "windlass.labels" -}}
{{ include "windlass.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The pod of a server, for a Deployment and for a StatefulSet. */}}
{{- define "windlass.pod" -}}
metadata:
  labels:
    {{- include "windlass.labels" . | nindent 4 }}
  annotations:
    checksum/config: {{ .Values.config | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  # Requests and elections end in this time; what is not reported by then is handed out again.
  terminationGracePeriodSeconds: 30
  containers:
    - name: server
      image: "{{ required "image.repository is missing: build an image from packaging/Containerfile and give its place" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - server
        - --config=/etc/windlass/windlass.toml
        {{- if .Values.insecure }}
        - --insecure
        {{- end }}
      env:
        - name: WINDLASS_SERVER_LISTEN
          value: 0.0.0.0:7700
        - name: WINDLASS_ACCESS_TOKENS
          value: "true"
        - name: WINDLASS_LOG_FORMAT
          value: json
        {{- if .Values.store.secret }}
        - name: WINDLASS_SERVER__STORE__FILE
          value: /etc/windlass/store/url
        {{- else }}
        - name: WINDLASS_SERVER_STORE
          value: sqlite:/data/windlass.db
        {{- end }}
        {{- if .Values.tls.secret }}
        - name: WINDLASS_SERVER_TLS_CERT
          value: /etc/windlass/tls/tls.crt
        - name: WINDLASS_SERVER_TLS_KEY
          value: /etc/windlass/tls/tls.key
        {{- else if not .Values.insecure }}
        {{- fail "tls.secret is missing: give the secret with a certificate, or set insecure if the network itself encrypts connections" }}
        {{- end }}
        {{- if .Values.adminToken.secret }}
        - name: WINDLASS_ACCESS_ADMIN_TOKEN_FILE
          value: /etc/windlass/admin/token
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: windlass
          containerPort: 7700
      startupProbe:
        httpGet: &probe
          path: /healthz
          port: windlass
          scheme: {{ if .Values.tls.secret }}HTTPS{{ else }}HTTP{{ end }}
        periodSeconds: 2
        # A start after a crash reads what is active.
        failureThreshold: 150
      livenessProbe:
        httpGet: *probe
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet:
          path: /readyz
          port: windlass
          scheme: {{ if .Values.tls.secret }}HTTPS{{ else }}HTTP{{ end }}
        periodSeconds: 5
        timeoutSeconds: 5
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - name: config
          mountPath: /etc/windlass/windlass.toml
          subPath: windlass.toml
        {{- if .Values.store.secret }}
        - name: store
          mountPath: /etc/windlass/store
          readOnly: true
        {{- else }}
        - name: data
          mountPath: /data
        {{- end }}
        {{- if .Values.tls.secret }}
        - name: tls
          mountPath: /etc/windlass/tls
          readOnly: true
        {{- end }}
        {{- if .Values.adminToken.secret }}
        - name: admin
          mountPath: /etc/windlass/admin
          readOnly: true
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "windlass.name" . }}
    {{- if .Values.store.secret }}
    - name: store
      secret:
        secretName: {{ .Values.store.secret }}
    {{- end }}
    {{- if .Values.tls.secret }}
    - name: tls
      secret:
        secretName: {{ .Values.tls.secret }}
    {{- end }}
    {{- if .Values.adminToken.secret }}
    - name: admin
      secret:
        secretName: {{ .Values.adminToken.secret }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
