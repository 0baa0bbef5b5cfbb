//! Mistakes that the checker has to find.

/// One mistake in what west holds: the case, what is replaced by what, and a word of the problem.
pub(crate) type Mistake = (&'static str, &'static str, &'static str, &'static str);

/// In mirrored EndpointSlices.
pub(crate) const SLICES: &[Mistake] = &[
    (
        "M03",
        "port: 8080}\nendpoints:\n- addresses: [10.1",
        "port: 8081}\nendpoints:\n- addresses: [10.1",
        "missing",
    ),
    (
        "M03",
        "protocol: TCP, port: 8080}\nendpoints:\n- addresses: [10.1",
        "protocol: UDP, port: 8080}\nendpoints:\n- addresses: [10.1",
        "missing",
    ),
    (
        "M03",
        "{name: metrics, protocol: TCP, port: 9100}\nendpoints",
        "{name: stats, protocol: TCP, port: 9100}\nendpoints",
        "missing",
    ),
    (
        "M03",
        "- addresses: [10.1.0.30]",
        "- addresses: [10.1.0.31]",
        "too much",
    ),
    (
        "D03",
        "- addresses: [10.1.0.31]\n  conditions: {ready: true, serving: true, terminating: false}\n  hostname: mongo-1\n",
        "",
        "missing",
    ),
    (
        "M03",
        "source-cluster: east",
        "source-cluster: west",
        "from west: too much",
    ),
    (
        "M03",
        "source-cluster: east",
        "source-cluster: north",
        "does not contribute",
    ),
    (
        "M03",
        "    multicluster.kubernetes.io/source-cluster: east\n",
        "",
        "no label",
    ),
    (
        "M03",
        "    kubernetes.io/service-name: derived-t6gvsa4gqu\n",
        "",
        "no label",
    ),
    (
        "M03",
        "kubernetes.io/service-name: derived-t6gvsa4gqu",
        "kubernetes.io/service-name: search",
        "expected Some(\"derived-t6gvsa4gqu\")",
    ),
    (
        "M03",
        "managed-by: controller.tombolo.dev",
        "managed-by: endpointslice-controller.k8s.io",
        "managed-by",
    ),
    (
        "M03",
        "name: derived-t6gvsa4gqu-east-a\n  namespace: shop\n  labels:\n    app.kubernetes.io/managed-by: tombolo\n",
        "name: derived-t6gvsa4gqu-east-a\n  namespace: shop\n  labels:\n",
        "managed-by",
    ),
    (
        "M03",
        "name: derived-t6gvsa4gqu-east-a\n  namespace: shop",
        "name: derived-t6gvsa4gqu-east-a\n  namespace: bank",
        "must not be there",
    ),
    ("M03", "addressType: IPv4", "addressType: IPv6", "IPv6"),
    (
        "M03",
        "kind: ServiceImport\n    name: search\n    uid: 6a0f0d0e-0000-4000-8000-000000000001\naddressType",
        "kind: Service\n    name: search\n    uid: 6a0f0d0e-0000-4000-8000-000000000001\naddressType",
        "not its owner",
    ),
    (
        "M03",
        "terminating: false}",
        "terminating: false}\n  nodeName: node-1",
        "nodeName",
    ),
    (
        "M03",
        "terminating: false}",
        "terminating: false}\n  hints: {forZones: [{name: a}]}",
        "too much",
    ),
    (
        "M03",
        "  conditions: {ready: true,",
        "  conditions: {ready: false,",
        "missing",
    ),
    (
        "D03",
        "{ready: false, serving: false,",
        "{ready: true, serving: true,",
        "too much",
    ),
    ("D03", "  hostname: mongo-0\n", "", "missing"),
    (
        "D03",
        "    service.kubernetes.io/headless: ''\n",
        "",
        "headless",
    ),
    (
        "D03",
        "- addresses: [10.2.0.31]",
        "- addresses: [10.2.0.30]\n  conditions: {ready: true, serving: true, terminating: false}\n  hostname: mongo-0\n- addresses: [10.2.0.31]",
        "twice",
    ),
    ("E07", "  zone: zone-b\n", "", "missing"),
    (
        "E07",
        "forZones:\n    - name: zone-b",
        "forZones:\n    - name: zone-a",
        "missing",
    ),
    (
        "M07",
        "{name: http, protocol: TCP, port: 8081}",
        "{name: web, protocol: TCP, port: 8081}",
        "port named web",
    ),
    (
        "M07",
        "- addresses: [10.2.0.70]",
        "- addresses: [10.2.0.71]",
        "missing",
    ),
    (
        "M13",
        "    kubernetes.io/service-name",
        "    app.kubernetes.io/instance: shop-east\n    kubernetes.io/service-name",
        "slicesNote",
    ),
    (
        "M23",
        "port: 5353}\nendpoints",
        "port: 5353}\n- {name: extra, protocol: TCP, port: 1}\nendpoints",
        "too much",
    ),
];

/// In ServiceImports and derived Services.
pub(crate) const IMPORTS: &[Mistake] = &[
    ("M03", "type: ClusterSetIP", "type: Headless", "type"),
    (
        "M03",
        "  - {name: metrics, protocol: TCP, port: 9100}\n  ips",
        "  ips",
        "ServiceImport ports",
    ),
    ("M03", "  ips:\n  - 192.0.2.10\n", "", "number of ips"),
    (
        "M03",
        "  ips:\n  - 192.0.2.10\n",
        "  ips:\n  - 192.0.2.99\n",
        "clusterIPs lack",
    ),
    (
        "M03",
        "  ips:\n  - 192.0.2.10\n",
        "  ips:\n  - 2001:db8::1\n",
        "families of the ips",
    ),
    (
        "M03",
        "ipFamilies: [IPv4]",
        "ipFamilies: [IPv4, IPv6]",
        "ipFamilies",
    ),
    ("M03", "  - cluster: west\n", "", "clusters"),
    (
        "M03",
        "  - cluster: east\n  - cluster: west\n",
        "  - cluster: west\n  - cluster: east\n",
        "sorted",
    ),
    (
        "M03",
        "sessionAffinity: None",
        "sessionAffinity: ClientIP",
        "sessionAffinity",
    ),
    (
        "M03",
        "internalTrafficPolicy: Cluster",
        "internalTrafficPolicy: Local",
        "internalTrafficPolicy",
    ),
    (
        "E07",
        "trafficDistribution: PreferClose",
        "trafficDistribution: PreferSameNode",
        "trafficDistribution",
    ),
    (
        "M03",
        "  ipFamilies: [IPv4]\n",
        "  ipFamilies: [IPv4]\n  trafficDistribution: PreferClose\n",
        "trafficDistribution",
    ),
    (
        "M03",
        "status: 'True'\n    reason: Ready",
        "status: 'False'\n    reason: Pending",
        "Ready",
    ),
    (
        "M03",
        "    multicluster.kubernetes.io/derived-service: derived-t6gvsa4gqu\n",
        "    x: z\n",
        "does not name it",
    ),
    (
        "M03",
        "derived-service: derived-t6gvsa4gqu",
        "derived-service: derived-0000000000",
        "is not there",
    ),
    (
        "M03",
        "endpointSliceObjects: Present",
        "endpointSliceObjects: Absent",
        "endpointSliceObjects",
    ),
    (
        "M03",
        "clusterIP: 192.0.2.10",
        "clusterIP: None",
        "clusterIP",
    ),
    ("M03", "clusterIP: 192.0.2.10", "clusterIP: ''", "clusterIP"),
    (
        "M03",
        "ipFamilyPolicy: SingleStack",
        "ipFamilyPolicy: PreferDualStack",
        "ipFamilyPolicy",
    ),
    (
        "M03",
        "spec:\n  type: ClusterIP",
        "spec:\n  selector: {app: search}\n  type: ClusterIP",
        "selector",
    ),
    (
        "M03",
        "port: 80}\n  - {name: metrics, protocol: TCP, port: 9100}\n  session",
        "port: 80, targetPort: 8080}\n  - {name: metrics, protocol: TCP, port: 9100}\n  session",
        "targetPort",
    ),
    (
        "M03",
        "    multicluster.kubernetes.io/service-name: search\n",
        "",
        "derived Service",
    ),
    (
        "D03",
        "clusterIP: None",
        "clusterIP: 192.0.2.77",
        "clusterIP",
    ),
    ("M13", "    tier: web\n", "", "label tier"),
    (
        "M13",
        "    tier: web\n",
        "    tier: web\n    team: core\n",
        "label team",
    ),
    ("M13", "docs: runbook-7", "docs: runbook-8", "annotation"),
    (
        "M03",
        "kind: ServiceImport\nmetadata:\n  name: search",
        "kind: ServiceImport\nmetadata:\n  name: find",
        "no ServiceImport",
    ),
];

/// In ServiceExports.
pub(crate) const EXPORTS: &[Mistake] = &[
    (
        "M03",
        "status: 'True'\n    reason: PortConflict",
        "status: 'False'\n    reason: NoConflicts",
        "Conflict",
    ),
    (
        "M03",
        "reason: PortConflict",
        "reason: PortConflict,TypeConflict",
        "reasons",
    ),
    (
        "M03",
        "reason: PortConflict",
        "reason: TypeConflict,PortConflict",
        "order",
    ),
    ("M03", "reason: Valid", "reason: Fine", "reason"),
    (
        "M03",
        "status: 'True'\n    reason: Exported",
        "status: 'False'\n    reason: Pending",
        "Ready",
    ),
    (
        "M03",
        "- type: Ready\n    status: 'True'\n    reason: Exported",
        "- type: Done\n    status: 'True'\n    reason: Exported",
        "missing",
    ),
    (
        "M03",
        "    message: the Service can be exported\n",
        "    message: ''\n",
        "no message",
    ),
    (
        "M03",
        "kind: ServiceExport\nmetadata:\n  name: search",
        "kind: ServiceExport\nmetadata:\n  name: find",
        "ServiceExports",
    ),
    (
        "M13",
        "    example.com/docs: runbook-8\n",
        "    example.com/docs: runbook-7\n",
        "/spec",
    ),
    (
        "M07",
        "\"TCP/80 is named http as in east; west names it web: 1/2 clusters disagree\"",
        "there is a conflict",
        "no 80",
    ),
    ("D03", "reason: NoConflicts", "reason: AllWell", "reasons"),
];
