package deploy_test

import (
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/serve"
)

// release holds the objects of a rendered chart; those that were not rendered are nil.
type release struct {
	config     *corev1.ConfigMap
	deployment *appsv1.Deployment
	worker     *appsv1.Deployment
	service    *corev1.Service
	volume     *corev1.PersistentVolumeClaim
	disruption *policyv1.PodDisruptionBudget
	autoscaler *autoscalingv2.HorizontalPodAutoscaler
	network    *networkingv1.NetworkPolicy
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load("../../deploy/helm/team-server")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders the chart with values in YAML.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	set, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(load(t), set, chartutil.ReleaseOptions{Name: "desk", Namespace: "agents"}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	return engine.Engine{Strict: true}.Render(load(t), all)
}

// decode decodes each object into its type in the API of Kubernetes. Unknown and repeated keys are errors.
func decode(t *testing.T, values string) *release {
	t.Helper()
	files, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	r := &release{}
	kinds := map[string]any{
		"v1 ConfigMap": &r.config, "apps/v1 Deployment": &r.deployment, "v1 Service": &r.service, "v1 PersistentVolumeClaim": &r.volume,
		"policy/v1 PodDisruptionBudget": &r.disruption, "autoscaling/v2 HorizontalPodAutoscaler": &r.autoscaler,
		"networking.k8s.io/v1 NetworkPolicy": &r.network,
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		if path.Ext(name) != ".yaml" || strings.TrimSpace(text) == "" {
			continue
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		into, ok := kinds[kind.APIVersion+" "+kind.Kind]
		if !ok {
			t.Fatalf("%s: unexpected %s %s", name, kind.APIVersion, kind.Kind)
		}
		if path.Base(name) == "worker.yaml" {
			into = &r.worker
		}
		object := reflect.New(reflect.TypeOf(into).Elem().Elem())
		if err := yaml.UnmarshalStrict([]byte(text), object.Interface()); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		reflect.ValueOf(into).Elem().Set(object)
	}
	return r
}

// check fails the test for a configuration that a server would refuse to serve. It returns the settings of the server.
func check(t *testing.T, file string) *teamv1.ServerSettings {
	t.Helper()
	env := func(name string) (string, bool) {
		v, ok := map[string]string{
			"TEAM_STORE":      "postgres://team:secret@postgres/team",
			"TEAM_KEY_SHA256": "d0c04f4b1951e4aeaaec8223ed2039e542f3aae805a6fa7f6d794e5afff5d272",
			"TEAM_PUBLIC_URL": "http://team.example", "TEAM_PUBLIC_GRPC": "team.example:50051",
		}[name]
		return v, ok
	}
	def, err := config.Loader{Env: env}.Parse("team.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range serve.Check(def, serve.Config{}) {
		t.Error(err)
	}
	return def.Server.GetServer()
}

const image = "image: {repository: registry.example/team-server}\n"

func TestChart(t *testing.T) {
	r := decode(t, image)
	if s := check(t, r.config.Data["team.yaml"]); s.GetPublicUrl() != "http://team.example" || s.GetPublicGrpc() != "team.example:50051" {
		t.Errorf("cards name %s and %s", s.GetPublicUrl(), s.GetPublicGrpc())
	}
	if *r.deployment.Spec.Replicas != 2 || r.volume != nil || r.autoscaler != nil {
		t.Errorf("%d replicas, volume %v, autoscaler %v", *r.deployment.Spec.Replicas, r.volume, r.autoscaler)
	}
	pod := r.deployment.Spec.Template
	for what, selector := range map[string]*metav1.LabelSelector{
		"deployment": r.deployment.Spec.Selector, "disruption budget": r.disruption.Spec.Selector, "network policy": &r.network.Spec.PodSelector,
		"service": {MatchLabels: r.service.Spec.Selector},
	} {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || !s.Matches(labels.Set(pod.Labels)) {
			t.Errorf("the %s selects %v (%v), the pods have %v", what, s, err, pod.Labels)
		}
	}
	checkPod(t, pod.Spec)
	ports := map[string]int32{}
	for _, p := range pod.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range r.service.Spec.Ports {
		if ports[p.TargetPort.String()] == 0 {
			t.Errorf("the service leads to the port %s, which the container does not have", p.TargetPort.String())
		}
	}
	for _, rule := range r.network.Spec.Ingress {
		for _, p := range rule.Ports {
			if ports[p.Port.String()] == 0 {
				t.Errorf("the network policy has the port %s, which the container does not have", p.Port)
			}
		}
	}
}

// checkPod checks that the server runs without rights that it does not need, and is asked for its health.
func checkPod(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *pod.AutomountServiceAccountToken {
		t.Errorf("the pod may do too much: %v", s)
	}
	if s := c.SecurityContext; !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Contains(s.Capabilities.Drop, "ALL") {
		t.Errorf("the container may do too much: %v", s)
	}
	for want, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe.HTTPGet.Path != want || probe.HTTPGet.Port.String() != "http" {
			t.Errorf("the probe asks %v, want %s", probe.HTTPGet, want)
		}
	}
	mounts, volumes := []string{}, []string{}
	for _, m := range c.VolumeMounts {
		mounts = append(mounts, m.Name)
	}
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
	}
	if !slices.Equal(mounts, volumes) {
		t.Errorf("volumes %v, mounted %v", volumes, mounts)
	}
}

// TestChart_PublicAddresses: cards name the service, unless the values name another address.
func TestChart_PublicAddresses(t *testing.T) {
	for values, want := range map[string][2]string{
		"":                     {"http://desk.agents:8080", "desk.agents:50051"},
		"probeScheme: HTTPS\n": {"https://desk.agents:8080", "desk.agents:50051"},
		"publicURL: https://team.example\npublicGRPC: team.example:443\nenv: [{name: A, value: b}]\n": {"https://team.example", "team.example:443"},
	} {
		env := map[string]string{}
		for _, e := range decode(t, image+values).deployment.Spec.Template.Spec.Containers[0].Env {
			env[e.Name] = e.Value
		}
		if env["TEAM_PUBLIC_URL"] != want[0] || env["TEAM_PUBLIC_GRPC"] != want[1] || strings.Contains(values, "env:") != (env["A"] == "b") {
			t.Errorf("%q: %v, want %v", values, env, want)
		}
	}
}

func TestChart_SQLite(t *testing.T) {
	r := decode(t, image+"replicas: 1\npersistence: {enabled: true, size: 5Gi, storageClassName: fast}\n")
	if r.deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Error("a second server would open the file before the first has closed it")
	}
	claim := ""
	for _, v := range r.deployment.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claim = v.PersistentVolumeClaim.ClaimName
		}
	}
	if claim != r.volume.Name || r.volume.Spec.Resources.Requests.Storage().String() != "5Gi" || *r.volume.Spec.StorageClassName != "fast" {
		t.Errorf("the pod mounts %q: %+v", claim, r.volume)
	}
}

func TestChart_Autoscaling(t *testing.T) {
	r := decode(t, image+"autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 7, queueDuePerReplica: 40}\n")
	if r.deployment.Spec.Replicas != nil {
		t.Error("the deployment sets the number of replicas, against the autoscaler")
	}
	s := r.autoscaler.Spec
	if s.ScaleTargetRef.Kind != "Deployment" || s.ScaleTargetRef.Name != r.deployment.Name || *s.MinReplicas != 3 || s.MaxReplicas != 7 {
		t.Errorf("%+v", s)
	}
	m := s.Metrics[0].External
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "| `"+m.Metric.Name+"` | gauge |") || m.Target.AverageValue.Value() != 40 {
		t.Errorf("scales by %+v", m)
	}
}

func TestChart_Settings(t *testing.T) {
	r := decode(t, image+`
config: "version: v1\nagents: {parrot: {description: Repeats., scripted: {steps: [{echo: true}]}}}\n"
files: {script.yaml: "agents: {}\n", prompt.md: "Write\n\n- clearly\n"}
secretName: ""
env: [{name: OPENAI_API_KEY, valueFrom: {secretKeyRef: {name: models, key: openai}}}]
extraVolumes: [{name: tls, secret: {secretName: desk-tls}}]
extraVolumeMounts: [{name: tls, mountPath: /tls, readOnly: true}]
ports: {metrics: 0}
probeScheme: HTTPS
podLabels: {tier: agents}
podAnnotations: {note: "1"}
imagePullSecrets: [{name: pull}]
nodeSelector: {disk: fast}
tolerations: [{key: agents, operator: Exists}]
service: {type: LoadBalancer, annotations: {note: "2"}}
podDisruptionBudget: {enabled: false}
networkPolicy:
  callers: [{podSelector: {matchLabels: {app: gateway}}}]
  egress: [{ports: [{port: 5432}]}]
`)
	c := r.deployment.Spec.Template.Spec.Containers[0]
	if len(c.EnvFrom) != 0 || c.Env[len(c.Env)-1].ValueFrom.SecretKeyRef.Key != "openai" || c.LivenessProbe.HTTPGet.Scheme != "HTTPS" || len(c.Ports) != 2 {
		t.Errorf("%+v", c)
	}
	mount, volumes := c.VolumeMounts[len(c.VolumeMounts)-1], r.deployment.Spec.Template.Spec.Volumes
	if mount.Name != "tls" || !mount.ReadOnly || mount.MountPath != "/tls" || volumes[len(volumes)-1].Secret.SecretName != "desk-tls" {
		t.Errorf("mounts %+v of %+v", c.VolumeMounts, volumes)
	}
	if r.config.Data["prompt.md"] != "Write\n\n- clearly\n" || r.disruption != nil || len(r.network.Spec.Ingress) != 1 || len(r.network.Spec.Egress) != 1 {
		t.Errorf("%v, %+v", r.config.Data, r.network.Spec)
	}
	if r.deployment.Spec.Template.Labels["tier"] != "agents" || r.service.Spec.Type != "LoadBalancer" {
		t.Errorf("%+v", r.deployment.Spec.Template.ObjectMeta)
	}
	if r := decode(t, image+"networkPolicy: {enabled: false}\n"); r.network != nil {
		t.Error("a network policy although it is off")
	}
}

// TestChart_Workers: with workers, the service leads to the pods that accept calls only.
func TestChart_Workers(t *testing.T) {
	values, err := os.ReadFile("../../deploy/helm/temporal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := decode(t, image+string(values)+"autoscaling: {enabled: true}\n")
	if s := check(t, r.config.Data["team.yaml"]); s.GetEngine().GetTemporal().GetUi() == "" {
		t.Error("the file has no engine")
	}
	for role, d := range map[string]*appsv1.Deployment{"front": r.deployment, "worker": r.worker} {
		c := d.Spec.Template.Spec.Containers[0]
		if !slices.Equal(c.Args[len(c.Args)-2:], []string{"--role", role}) {
			t.Errorf("%s: %v", role, c.Args)
		}
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		if !ports[c.LivenessProbe.HTTPGet.Port.String()] || ports["http"] != (role == "front") {
			t.Errorf("the %s has the ports %v and is asked at %v", role, ports, c.LivenessProbe.HTTPGet)
		}
		for other, p := range map[string]*appsv1.Deployment{"front": r.deployment, "worker": r.worker} {
			s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
			if err != nil || s.Matches(labels.Set(p.Spec.Template.Labels)) != (role == other) {
				t.Errorf("the deployment of the %s selects the %s, or not its own pods: %v", role, other, err)
			}
		}
		if called := labels.SelectorFromSet(r.service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)); called != (role == "front") {
			t.Errorf("the service leads to the %s: %v", role, called)
		}
	}
	if r.autoscaler.Spec.ScaleTargetRef.Name != r.worker.Name || r.worker.Spec.Replicas != nil || *r.deployment.Spec.Replicas != 2 {
		t.Errorf("the autoscaler scales %+v", r.autoscaler.Spec)
	}
}

func TestChart_Faults(t *testing.T) {
	for values, want := range map[string]string{
		"":                                       "image.repository is empty",
		image + "persistence: {enabled: true}\n": "set replicas to 1",
		image + "replicas: 1\npersistence: {enabled: true}\nautoscaling: {enabled: true}\n": "autoscaling.enabled to false",
		image + "config: \"\"\n":                                                      "config is empty",
		image + "workers: {replicas: 1}\nports: {metrics: 0}\n":                       "ports.metrics is 0",
		image + "replicas: 1\nworkers: {replicas: 1}\npersistence: {enabled: true}\n": "workers.replicas to 0",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", values, err, want)
		}
	}
}
