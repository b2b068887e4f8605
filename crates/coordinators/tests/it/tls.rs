//! Coordinators over TLS, with a private CA and client certificates.

use std::{path::Path, time::Duration};

use tokio::time::timeout;
use windlass_coordinators::{Campaign, connect};
use windlass_testkit::{Consul, Etcd, ZooKeeper, certificate, free_port};

use crate::servers::LEASE;

const PATIENCE: Duration = Duration::from_secs(60);

/// Elects a leader with these URLs: with a client certificate it works, and everything else is refused.
async fn conforms(scheme: &str, port: u16, folder: &Path) {
    let campaign = Campaign::new("tls/name", "candidate", LEASE);
    let file = |name: &str| folder.join(name).display().to_string();
    let (authority, client) =
        (file("authority.pem"), format!("{}&key={}", file("client.pem"), file("client.key")));
    let url = |host: &str, query: &str| format!("{scheme}s://{host}:{port}/windlass{query}");
    let coordinator = connect(&url("localhost", &format!("?cacert={authority}&cert={client}"))).unwrap();
    let leadership = timeout(PATIENCE, coordinator.campaign(&campaign)).await.expect("in time").unwrap();
    let leader = timeout(PATIENCE, coordinator.leader("tls/name")).await.expect("in time").unwrap();
    assert_eq!(leader.map(|leader| leader.id).as_deref(), Some("candidate"));
    leadership.resign().await.unwrap();

    for (url, part) in [
        (url("localhost", &format!("?cert={client}")), "UnknownIssuer"),
        (url("127.0.0.1", &format!("?cacert={authority}&cert={client}")), "not valid for name"),
        (url("localhost", &format!("?cacert={authority}")), "certificate"),
        (format!("{scheme}://localhost:{port}/windlass"), ""),
    ] {
        let coordinator = connect(&url).unwrap();
        let error = timeout(PATIENCE, coordinator.leader("tls/name")).await.expect("in time").unwrap_err();
        let error = error.to_string();
        assert!(error.to_lowercase().contains(&part.to_lowercase()), "{url}: {error}");
    }
    let missing = connect(&url("localhost", "?cacert=/no/such.pem")).err().unwrap().to_string();
    assert!(missing.contains("/no/such.pem"), "{missing}");
}

#[tokio::test]
async fn etcd_asks_for_certificates_of_clients() {
    let (folder, port) = (certificate::folder(), free_port().unwrap());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let settings = [
        format!("https={port}"),
        format!("cert-file={}", file("server.pem")),
        format!("key-file={}", file("server.key")),
        format!("trusted-ca-file={}", file("authority.pem")),
        "client-cert-auth=true".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let Some(_server) = Etcd::start_with(&settings).unwrap() else { return };
    conforms("etcd", port, folder.path()).await;
}

#[tokio::test]
async fn consul_asks_for_certificates_of_clients() {
    let (folder, port) = (certificate::folder(), free_port().unwrap());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let tls = format!(
        "tls {{ https {{ ca_file = \"{}\" cert_file = \"{}\" key_file = \"{}\" verify_incoming = true }} }}",
        file("authority.pem"),
        file("server.pem"),
        file("server.key")
    );
    let ports = format!("ports {{ https = {port} }}");
    let Some(_server) = Consul::start_with(&[&tls, &ports]).unwrap() else { return };
    conforms("consul", port, folder.path()).await;
}

#[tokio::test]
async fn zookeeper_asks_for_certificates_of_clients() {
    let (folder, port) = (certificate::folder(), free_port().unwrap());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    // Java wants both in one file.
    std::fs::write(file("keys.pem"), read("server.key") + &read("server.pem")).unwrap();
    let settings = [
        format!("secureClientPort={port}"),
        "secureClientPortAddress=127.0.0.1".to_owned(),
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
        "ssl.keyStore.type=PEM".to_owned(),
        format!("ssl.keyStore.location={}", file("keys.pem")),
        "ssl.trustStore.type=PEM".to_owned(),
        format!("ssl.trustStore.location={}", file("authority.pem")),
        // It would look up the names of clients.
        "ssl.clientHostnameVerification=false".to_owned(),
        "ssl.hostnameVerification=false".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let Some(_server) = ZooKeeper::start_with(&settings).unwrap() else { return };
    conforms("zookeeper", port, folder.path()).await;
}
