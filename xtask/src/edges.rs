//! Which crate may use which. The arrows are those of ARCHITECTURE.md:
//!
//! ```text
//! store, schedule ─▶ core   engine ─▶ store, schedule, core, brokers   stores ─▶ store, core   sim ─▶ engine, store, brokers, core
//! brokers ─▶ tls   coordinators ─▶ api, tls   client ─▶ api, brokers, coordinators, tls   windlass ─▶ the others
//! ```
//!
//! Tests may use `testkit`, which uses nothing of ours, and `conformance`, which uses `store` and `core`.
//!
//! `core`, `api` and `tls` use nothing of ours. Products (the folders of `stores`, `brokers` and `coordinators`)
//! never use one another. What makes a crate what it is (the core decides and does nothing, the engine has no runtime, the client no server in it) is
//! kept by naming what it may never use.

use crate::{
    findings::Findings,
    metadata::{Metadata, Package},
    workspace::Workspace,
};

/// A crate, and the crates of this workspace that it may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("windlass-core", &[]),
    ("windlass-api", &[]),
    ("windlass-tls", &[]),
    ("windlass-brokers", &["windlass-tls", "windlass-testkit"]),
    ("windlass-coordinators", &["windlass-api", "windlass-tls", "windlass-testkit"]),
    ("windlass-store", &["windlass-core", "windlass-conformance"]),
    ("windlass-conformance", &["windlass-core", "windlass-store"]),
    ("windlass-schedule", &["windlass-core"]),
    (
        "windlass-engine",
        &["windlass-core", "windlass-schedule", "windlass-store", "windlass-brokers", "windlass-conformance"],
    ),
    ("windlass-testkit", &[]),
    (
        "windlass-stores",
        &[
            "windlass-store",
            "windlass-core",
            "windlass-tls",
            "windlass-conformance",
            "windlass-engine",
            "windlass-testkit",
        ],
    ),
    (
        "windlass-sim",
        &["windlass-engine", "windlass-store", "windlass-brokers", "windlass-core", "windlass-conformance"],
    ),
    ("windlass-powercut", &["windlass-stores", "windlass-store", "windlass-core", "windlass-conformance"]),
    (
        "windlass-client",
        &["windlass-api", "windlass-brokers", "windlass-coordinators", "windlass-tls", "windlass-testkit"],
    ),
    (
        "windlass",
        &[
            "windlass-core",
            "windlass-engine",
            "windlass-store",
            "windlass-stores",
            "windlass-api",
            "windlass-brokers",
            "windlass-coordinators",
            "windlass-client",
            "windlass-tls",
            "windlass-testkit",
        ],
    ),
    // Its drills talk to servers as any other client.
    ("xtask", &["windlass-client", "windlass-testkit"]),
];

/// A crate, packages it may never use outside its tests, and why.
const NEVER: &[(&str, &[&str], &str)] = &[
    (
        "windlass-core",
        &["async-trait", "futures-util", "getrandom", "jiff", "rand", "tokio", "tracing"],
        "the core only decides: time, chance, and input and output stay outside",
    ),
    (
        "windlass-engine",
        &["axum", "hyper", "jiff", "reqwest", "rusqlite", "tokio"],
        "the engine needs no runtime, network, disk or clock: they come in through its ports and arguments",
    ),
    ("windlass-client", &["axum", "hyper", "rusqlite"], "the client has no server code in it"),
    ("windlass-client", &["windlass-testkit"], KIT),
    ("windlass-store", &["windlass-conformance"], SUITE),
    ("windlass-engine", &["windlass-conformance"], SUITE),
    ("windlass-stores", &["windlass-conformance"], SUITE),
    ("windlass-stores", &["windlass-engine"], "a store knows the port, and not who uses it"),
    ("windlass-stores", &["windlass-testkit"], KIT),
    ("windlass-brokers", &["windlass-testkit"], KIT),
    ("windlass-coordinators", &["windlass-testkit"], KIT),
    ("windlass", &["windlass-testkit"], KIT),
];

const KIT: &str = "the test kit is for tests";

const SUITE: &str = "the suite for stores is for tests";

/// The crates whose folders are products.
const PRODUCT_FOLDERS: &[&str] = &["crates/stores/src", "crates/brokers/src", "crates/coordinators/src"];

/// Their folders that are no products, but what products have in common.
const SHARED: &[&str] =
    &["lib", "connect", "encoding", "rows", "address", "bound", "candidate", "http", "stored"];

/// Checks all edges.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<Findings> {
    let metadata = Metadata::load(workspace)?;
    let members: Vec<&Package> = metadata.members().collect();
    let mut findings = Findings::default();
    for package in &members {
        let uses: Vec<&str> = package.dependencies.iter().map(|uses| uses.name.as_str()).collect();
        let ours = |name: &str| members.iter().any(|member| member.name == name);
        check_allowed(&package.name, uses.into_iter().filter(|name| ours(name)), &mut findings);
        let outside_tests = package.dependencies.iter().filter(|uses| uses.kind.is_none());
        check_never(&package.name, outside_tests.map(|uses| uses.name.as_str()), &mut findings);
    }
    let files = workspace.files()?;
    for folder in PRODUCT_FOLDERS {
        for (path, product) in files.iter().filter_map(|path| Some((path, product(folder, path)?))) {
            let others = files.iter().filter_map(|path| self::product(folder, path));
            let others = others.filter(|other| *other != product);
            check_product(path, &workspace.read(path)?, others, &mut findings);
        }
    }
    Ok(findings)
}

fn check_allowed<'a>(name: &str, uses: impl Iterator<Item = &'a str>, findings: &mut Findings) {
    let Some((_, allowed)) = ALLOWED.iter().find(|(of, _)| *of == name) else {
        findings.add(name, "is not in the table of crates: say in xtask/src/edges.rs what it may use");
        return;
    };
    // A crate may name itself: its tests switch a feature of it on that way.
    for used in uses.filter(|used| *used != name && !allowed.contains(used)) {
        findings.add(name, format_args!("may not use {used}: see the edges in ARCHITECTURE.md"));
    }
}

fn check_never<'a>(name: &str, uses: impl Iterator<Item = &'a str>, findings: &mut Findings) {
    for used in uses {
        for (_, _, reason) in NEVER.iter().filter(|(of, never, _)| *of == name && never.contains(&used)) {
            findings.add(name, format_args!("may not use {used}: {reason}"));
        }
    }
}

/// The product a source file belongs to: the folder or file right below `folder`.
fn product<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder)?.strip_prefix('/')?;
    let product = rest.split('/').next()?;
    let product = product.strip_suffix(".rs").unwrap_or(product);
    (path.ends_with(".rs") && !SHARED.contains(&product)).then_some(product)
}

fn check_product<'a>(path: &str, text: &str, others: impl Iterator<Item = &'a str>, findings: &mut Findings) {
    let mut reported: Vec<&str> = Vec::new();
    for other in others {
        if text.contains(&format!("crate::{other}")) && !reported.contains(&other) {
            findings.add(path, format_args!("uses `{other}`: products never use one another"));
            reported.push(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_to_its_edges() {
        let findings = check(&Workspace::of_this_crate()).unwrap();
        assert_eq!(findings.lines(), &[] as &[String]);
    }

    #[test]
    fn a_forbidden_edge_is_named() {
        let mut findings = Findings::default();
        check_allowed("windlass-engine", ["windlass-core", "windlass-api"].into_iter(), &mut findings);
        check_allowed("windlass-new", [].into_iter(), &mut findings);
        check_never("windlass-core", ["serde", "tokio"].into_iter(), &mut findings);
        let lines = findings.lines();
        assert_eq!(lines.len(), 3, "{findings}");
        assert!(lines[0].starts_with("windlass-engine: may not use windlass-api"), "{findings}");
        assert!(lines[1].starts_with("windlass-new: is not in the table"), "{findings}");
        assert!(lines[2].starts_with("windlass-core: may not use tokio"), "{findings}");
    }

    #[test]
    fn a_product_that_uses_another_is_found() {
        assert_eq!(product("crates/stores/src", "crates/stores/src/sqlite/sink.rs"), Some("sqlite"));
        assert_eq!(product("crates/stores/src", "crates/stores/src/memory.rs"), Some("memory"));
        assert_eq!(product("crates/stores/src", "crates/stores/src/lib.rs"), None);
        assert_eq!(product("crates/stores/src", "crates/stores/src/rows/keys.rs"), None);
        let mut findings = Findings::default();
        check_product("a.rs", "use crate::sqlite::Sink;", ["sqlite"].into_iter(), &mut findings);
        check_product("b.rs", "use crate::memory::Sink;", ["sqlite"].into_iter(), &mut findings);
        assert_eq!(findings.lines(), ["a.rs: uses `sqlite`: products never use one another"]);
    }
}
