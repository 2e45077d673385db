{{- define "archiver.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "archiver.selector" -}}
app.kubernetes.io/name: kafka-archiver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "archiver.labels" -}}
{{ include "archiver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* archive.yaml: the values, with what the pods of this chart depend on. */}}
{{- define "archiver.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "metrics" (dict "listen" "0.0.0.0:9404") -}}
{{- if .Values.compacted.enabled -}}
{{- $names := dict "enabled" true "instances" (list "0" "1") -}}
{{- $_ := set $config "compacted" (merge $names (get $config "compacted" | default dict)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Fails where a section `kafka` has a secret in plain text: a ConfigMap is read by many. */}}
{{- define "archiver.secretless" -}}
{{- range $name, $value := . -}}
{{- if and (regexMatch "(password|secret)$" $name) (not (contains "${" (toString $value))) -}}
{{- fail (printf "kafka.%s: is in plain text; write ${NAME} here, and give NAME to the secret of each part" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A pod. Of a dict: root, component (its name in values.yaml), args, isSpark, isService. */}}
{{- define "archiver.pod" -}}
{{- $root := .root -}}
{{- $values := index $root.Values .component -}}
{{- $tag := $root.Values.image.tag | default $root.Chart.AppVersion -}}
{{- if .isSpark -}}{{- $tag = $root.Values.image.sparkTag | default (printf "%s-spark" $tag) -}}{{- end -}}
metadata:
  labels:
    {{- include "archiver.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- if .isService }}
    kafka-archiver/metrics: "true"
    {{- end }}
  annotations:
    checksum/config: {{ include "archiver.config" $root | sha256sum }}
spec:
  {{- if not .isService }}
  restartPolicy: Never
  {{- end }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  automountServiceAccountToken: false
  {{- with $values.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: archiver
      image: "{{ $root.Values.image.repository }}:{{ $tag }}"
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{- toYaml (concat .args $values.args (list "--log-format" "json")) | nindent 8 }}
      env:
        - {name: ARCHIVER_CONFIG, value: /etc/archiver/archive.yaml}
        {{- if eq .component "compacted" }}
        - name: INSTANCE
          valueFrom:
            fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}
        {{- end }}
      {{- with $values.secret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      {{- if .isService }}
      ports:
        - {name: metrics, containerPort: 9404}
      startupProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 3
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
      {{- end }}
      resources: {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: config, mountPath: /etc/archiver, readOnly: true}
        - {name: scratch, mountPath: /tmp}
  volumes:
    - name: config
      configMap: {name: {{ include "archiver.name" $root }}}
    - name: scratch
      emptyDir: {sizeLimit: {{ $values.scratch }}}
  {{- with $root.Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* A job that runs by a schedule. Of a dict: root, component, args, retries. */}}
{{- define "archiver.cronjob" -}}
{{- $values := index .root.Values .component -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ include "archiver.name" .root }}-{{ .component }}
  labels: {{- include "archiver.labels" .root | nindent 4 }}
spec:
  schedule: {{ $values.schedule | quote }}
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 7200
  jobTemplate:
    spec:
      backoffLimit: {{ .retries }}
      activeDeadlineSeconds: {{ $values.activeDeadlineSeconds }}
      template:
        {{- include "archiver.pod" (dict "root" .root "component" .component "args" .args "isSpark" true "isService" false) | nindent 8 }}
{{- end -}}
