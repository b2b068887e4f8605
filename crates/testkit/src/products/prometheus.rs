//! Prometheus, which scrapes one server every second.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::{
    http,
    product::{Place, Product, finish},
    server::Server,
};

/// Prometheus as it is installed on this machine. Its settings are `target=PORT`, which it scrapes, and `rules=FILE` with alert
/// rules.
#[derive(Debug)]
pub struct PrometheusProduct {
    program: PathBuf,
}

impl Product for PrometheusProduct {
    const NAME: &'static str = "Prometheus";
    const PACKAGE: &'static str = "prometheus";
    const USER: &'static str = "prometheus";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] = &[];
    const HAS_TEMPLATE: bool = false;

    fn find() -> Option<Self> {
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let mut programs = std::env::split_paths(&in_path).map(|folder| folder.join("prometheus"));
        programs.find(|path| path.is_file()).map(|program| Self { program })
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<PrometheusProduct>>> = Mutex::new(None);
        &SLOT
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()> {
        let mut command = run(Path::new("mkdir"));
        command.arg("--").arg(data);
        finish(command).map(drop)
    }

    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()> {
        let setting = |name: &str| {
            let found =
                place.settings.iter().find_map(|setting| setting.strip_prefix(name)?.strip_prefix('='));
            found.with_context(|| format!("the setting {name} is missing"))
        };
        // Its user may not be able to read the file where it is.
        let (rules, copy) = (setting("rules")?, place.data.join("rules.yaml"));
        fs::copy(rules, &copy).with_context(|| format!("cannot copy {rules}"))?;
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [ {} ]\n\
             scrape_configs:\n  - job_name: windlass\n    static_configs: [ {{ targets: [ '127.0.0.1:{}' ] }} ]\n",
            copy.display(),
            setting("target")?
        );
        let file = place.data.join("prometheus.yaml");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", place.data.join("tsdb").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{}", place.port));
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _: u32) -> Result<bool> {
        let flags = http::ask(place.port, "GET", "/api/v1/status/flags", "")?;
        let own = place.data.join("tsdb");
        ensure!(flags.contains(&*own.to_string_lossy()), "another Prometheus answers");
        http::ask(place.port, "GET", "/-/ready", "").map(|_| true)
    }
}

impl Server<PrometheusProduct> {
    /// Starts Prometheus: it scrapes the server on this port, and has the alert rules of this file.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn watching(port: u16, rules: &Path) -> Result<Option<Self>> {
        Self::start_with(&[&format!("target={port}"), &format!("rules={}", rules.display())])
    }

    /// The answer of its HTTP interface to `GET /api/v1/` and this path.
    ///
    /// # Errors
    /// When it does not answer with status 200.
    pub fn get(&self, path: &str) -> Result<String> {
        http::ask(self.port(), "GET", &format!("/api/v1/{path}"), "")
    }
}
