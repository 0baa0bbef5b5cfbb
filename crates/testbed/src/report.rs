//! What the command prints.
#![expect(clippy::print_stdout, reason = "the results of a command for people")]

use tombolo_testbed::{Authority, Etcd, Identity, Summary, Testbed};

/// What went wrong, with its causes.
#[expect(clippy::print_stderr, reason = "beside results on stdout")]
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}

/// A line.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// A text that ends its own lines.
pub(crate) fn text(text: &str) {
    print!("{text}");
}

/// The clusters of a testbed, and how to reach them.
pub(crate) fn clusters(testbed: &Testbed) {
    let rows = testbed.clusters().iter().map(|cluster| {
        [
            cluster.name().to_owned(),
            cluster.spec().kubernetes.to_string(),
            cluster.spec().families.to_string(),
            cluster.nodes().len().to_string(),
            cluster.server().to_owned(),
            cluster.kubeconfig_file().display().to_string(),
        ]
    });
    table(
        [
            "CLUSTER",
            "KUBERNETES",
            "FAMILIES",
            "NODES",
            "SERVER",
            "KUBECONFIG",
        ],
        rows,
    );
    println!(
        "\nexport KUBECONFIG={}   # a context per cluster",
        testbed.kubeconfig_file().display()
    );
}

/// The members of an etcd.
pub(crate) fn etcd(testbed: &Testbed, etcd: &Etcd) {
    println!("etcd: {}", etcd.endpoints().join(","));
    println!("state: {}", testbed.folder().display());
}

/// What clients of an etcd with TLS need.
pub(crate) fn identity(authority: &Authority, client: &Identity) {
    println!("authority: {}", authority.certificate().display());
    println!("client certificate: {}", client.certificate.display());
    println!("client key: {}", client.key.display());
}

/// All testbeds and their parts.
pub(crate) fn status(testbeds: &[Summary]) {
    if testbeds.is_empty() {
        println!("no testbed runs");
    }
    for testbed in testbeds {
        let owner = if testbed.is_owned {
            "its owner runs"
        } else {
            "nobody's: testbed down"
        };
        println!("{} ({owner}) {}", testbed.id, testbed.folder.display());
        let rows = testbed.parts.iter().map(|part| {
            let pid = part
                .pid
                .map_or_else(|| "stopped".to_owned(), |pid| pid.to_string());
            [format!("  {}", part.name), pid]
        });
        table(["  PART", "PID"], rows);
    }
}

fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned))
        .chain(rows)
        .collect();
    let widths: Vec<_> = (0..N)
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        println!("{}", cells.join("  ").trim_end());
    }
}
