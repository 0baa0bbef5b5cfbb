//! Which check stands for which text.

use super::checks::{self, untouched};
use super::{Check, names};

/// Case, field, exact text, check.
pub(super) const TABLE: &[(&str, &str, &str, Check)] = &[
    (
        "D05",
        "alsoCheck",
        "the negative answer of the first round is not served longer than the SOA minimum it was \
         given with",
        names::negative_answers_are_short_lived,
    ),
    ("E09", "untouched", "east v1/Endpoints shop/erp", |seen| {
        untouched(seen, "east", "Endpoints", "shop", "erp")
    }),
    (
        "E09",
        "untouched",
        "east EndpointSlice shop/erp-mir01",
        |seen| untouched(seen, "east", "EndpointSlice", "shop", "erp-mir01"),
    ),
    (
        "E13",
        "untouched",
        "west v1/Service shop/derived-5vaodk56ln",
        |seen| untouched(seen, "west", "Service", "shop", "derived-5vaodk56ln"),
    ),
    (
        "E13",
        "untouched",
        "west EndpointSlice shop/derived-5vaodk56ln-xx",
        |seen| {
            untouched(
                seen,
                "west",
                "EndpointSlice",
                "shop",
                "derived-5vaodk56ln-xx",
            )
        },
    ),
    (
        "E13",
        "blocked.what",
        "the ServiceImport exists but is Ready False (or does not exist); an Event or status \
         message names the Service that is in the way; no retry storm; no slice of the product in \
         west",
        checks::blocked_import_names_what_is_in_its_way,
    ),
    (
        "E13",
        "blocked.dnsRule",
        "never an address of the foreign Service or of 10.2.0.130",
        |seen| {
            let names = ["basket.shop.svc.clusterset.local."];
            let mut found = checks::nobody_serves(seen, "10.2.0.130");
            found.extend(names::never_lead_to(seen, &names, "10.2.0.130"));
            found.extend(names::never_lead_to_service(
                seen,
                &names,
                "derived-5vaodk56ln",
            ));
            found
        },
    ),
    (
        "E15",
        "forbidden",
        "10.7.0.150 re-published by the product",
        |seen| checks::nobody_serves(seen, "10.7.0.150"),
    ),
    ("E15", "forbidden", "oldclu in status.clusters", |seen| {
        checks::nobody_serves(seen, "oldclu")
    }),
    (
        "E15",
        "untouched",
        "east EndpointSlice shop/news-other-impl",
        |seen| untouched(seen, "east", "EndpointSlice", "shop", "news-other-impl"),
    ),
    (
        "E15",
        "untouched",
        "west EndpointSlice shop/news-other-impl",
        |seen| untouched(seen, "west", "EndpointSlice", "shop", "news-other-impl"),
    ),
    (
        "E15",
        "slicesNote",
        "count only slices managed by the product",
        checks::every_slice_is_the_products,
    ),
    (
        "E17",
        "alsoCheck",
        "ServiceExport shop/login still exists in east without deletionTimestamp",
        checks::export_still_exists,
    ),
    (
        "E17",
        "gone.what",
        "ServiceImport, derived Service, mirrored slices",
        checks::only_exports_are_left,
    ),
    (
        "E19",
        "forbidden",
        "a namespace shop created in west by the product (unless it is documented and switched on)",
        checks::nothing_in_shop_in_west,
    ),
    (
        "E19",
        "forbidden",
        "error log lines repeated for the missing namespace",
        checks::no_line_is_repeated,
    ),
    (
        "E19",
        "gone.what",
        "everything; the namespace is not held in Terminating by the product, and nothing is \
         created in it while it terminates",
        checks::namespace_can_go,
    ),
    (
        "I01",
        "alsoCheck",
        "also refused: an empty name, 64 characters, a leading dash, a trailing dot",
        checks::more_bad_names_are_refused,
    ),
    (
        "I01",
        "alsoCheck",
        "exit code not 0, before anything is written to the registry or to any API server",
        checks::refusal_fails,
    ),
    (
        "I01",
        "alsoCheck",
        "a tool that reads several cluster folders may refuse the whole run instead, naming both \
         bad folders at once",
        |seen| checks::refusal_says(seen, &[&["East_1"], &["a.b.c"]]),
    ),
    (
        "I01",
        "refused.error",
        "names the cluster name, says upper case and underscore are not allowed in an RFC 1123 \
         label",
        |seen| {
            let words: &[&[&str]] = &[
                &["East_1"],
                &["upper case", "upper-case"],
                &["underscore"],
                &["RFC 1123 label"],
            ];
            checks::refusal_says(seen, words)
        },
    ),
    (
        "I01",
        "refused.error",
        "at most two labels (name, or name.registry)",
        |seen| {
            let words: &[&[&str]] = &[&["a.b.c"], &["at most two labels"], &["name.registry"]];
            checks::refusal_says(seen, words)
        },
    ),
    (
        "M07",
        "forbidden",
        "any mirrored slice with a port named web (kube-proxy would ignore it silently)",
        |seen| checks::no_slice_port(seen, "web", None),
    ),
    (
        "M07",
        "forbidden",
        "an import with both http/80 and web/80",
        checks::no_import_has_one_port_twice,
    ),
    (
        "M07",
        "why",
        "Names are merged first, then protocol and number: TCP/80 exists already, the oldest name \
         wins, PortConflict on both. The KEP is silent on whether west's endpoints may serve port \
         80 under the winning name; both answers are accepted, but the message on both exports \
         must name the port and the two clusters.",
        |seen| checks::conflict_messages_name(seen, &["80", "http", "web", "east", "west"]),
    ),
    (
        "M11",
        "why",
        "The oldest decides. The derived Service must carry ClientIP with 42 s too (an import that \
         only displays it is the bug in the sources). The message shows the number 42, not a \
         character.",
        |seen| checks::conflict_messages_name(seen, &["42", "east", "west"]),
    ),
    (
        "M13",
        "slicesNote",
        "mirrored slices must not carry app.kubernetes.io/instance either, in any cluster",
        |seen| checks::no_slice_label(seen, "app.kubernetes.io/instance"),
    ),
    ("M17", "untouched", "east v1/Service shop/billing", |seen| {
        untouched(seen, "east", "Service", "shop", "billing")
    }),
    (
        "M17",
        "why",
        "KEP: ExternalName cannot be exported. The message names the type. East still imports \
         west's service under clusterset.local and its local name is left alone.",
        checks::refused_type_is_named,
    ),
    (
        "M23",
        "forbidden",
        "a slice port named dns with protocol TCP",
        |seen| checks::no_slice_port(seen, "dns", Some("TCP")),
    ),
    (
        "S01",
        "forbidden",
        "10.2.255.1 anywhere under clusterset.local",
        |seen| {
            let names = [
                "kubernetes.default.svc.clusterset.local.",
                "10-2-255-1.east.kubernetes.default.svc.clusterset.local.",
                "10-2-255-1.west.kubernetes.default.svc.clusterset.local.",
            ];
            let mut found = checks::nobody_serves(seen, "10.2.255.1");
            found.extend(names::never_lead_to(seen, &names, "10.2.255.1"));
            found
        },
    ),
    (
        "S01",
        "untouched",
        "east and west v1/Service default/kubernetes and their slices",
        checks::api_servers_are_left_alone,
    ),
    (
        "S01",
        "untouched",
        "kubernetes.default.svc.cluster.local in both clusters",
        |seen| names::not_answered(seen, "kubernetes.default.svc.cluster.local."),
    ),
    (
        "S01",
        "either",
        "as above, or (if the product ships a rule against default and kube-system) Valid False \
         with a reason and message naming that rule, and nothing imported anywhere",
        checks::no_rule_against_default,
    ),
];
