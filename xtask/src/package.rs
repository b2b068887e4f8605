//! `cargo xtask package`: the Debian package, and a check that it can be installed, started and removed.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::workspace::Workspace;

/// How long the installed server may take to become ready and to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// Files of the project, where they go, and their modes.
const FILES: [(&str, &str, u32); 7] = [
    ("packaging/windlass.service", "usr/lib/systemd/system/windlass.service", 0o644),
    ("packaging/windlass.toml", "etc/windlass/windlass.toml", 0o644),
    ("docs/reference/windlass.toml", "usr/share/doc/windlass/windlass.toml", 0o644),
    ("docs/reference/config.schema.json", "usr/share/doc/windlass/config.schema.json", 0o644),
    ("docs/reference/flow.schema.json", "usr/share/doc/windlass/flow.schema.json", 0o644),
    ("LICENSE-MIT", "usr/share/doc/windlass/copyright", 0o644),
    ("LICENSE-APACHE", "usr/share/doc/windlass/LICENSE-APACHE", 0o644),
];

/// Shells, and where their completion scripts go.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/windlass"),
    ("fish", "usr/share/fish/vendor_completions.d/windlass.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_windlass"),
];

/// How a package is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Not at all: an unoptimised program has hundreds of MB.
    None,
    /// As Debian's own packages.
    Xz,
}

/// Builds the package of this program, which has all features, in a folder. Returns the file.
pub(crate) fn build(
    workspace: &Workspace,
    program: &Path,
    out: &Path,
    compression: Compression,
) -> anyhow::Result<PathBuf> {
    let tree = tempfile::tempdir()?;
    let place = |path: &str| tree.path().join(path);
    let text = |program: &str, arguments: &[&str]| workspace.output(program, arguments);
    let name = program.to_str().context("the path of the program is not UTF-8")?;
    let add = |path: &str, content: &[u8], mode: u32| -> anyhow::Result<()> {
        let path = place(path);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(&path, content)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
    };
    add("usr/bin/windlass", &fs::read(program)?, 0o755)?;
    for (file, path, mode) in FILES {
        add(path, workspace.read(file)?.as_bytes(), mode)?;
    }
    for (shell, path) in COMPLETIONS {
        add(path, text(name, &["completions", shell])?.as_bytes(), 0o644)?;
    }
    let pages = place("usr/share/man/man1");
    workspace.run(name, &["man", &pages.display().to_string()])?;
    for page in fs::read_dir(&pages)? {
        workspace.run("gzip", &["-9n", &page?.path().display().to_string()])?;
    }
    let sbom = serde_json::to_string_pretty(&sbom(workspace)?)?;
    add("usr/share/doc/windlass/sbom.cdx.json", sbom.as_bytes(), 0o644)?;

    let version = text(name, &["--version"])?;
    let version = version.trim().strip_prefix("windlass ").context("`--version` prints no version")?;
    let architecture = text("dpkg", &["--print-architecture"])?;
    let kib = fs::metadata(program)?.len() / 1024;
    let control = workspace.read("packaging/debian/control")?;
    let control = control
        .replace("VERSION", version)
        .replace("ARCHITECTURE", architecture.trim())
        .replace("SIZE", &kib.to_string())
        .replace("DEPENDS", &libraries(workspace, name)?);
    add("DEBIAN/control", control.as_bytes(), 0o644)?;
    add("DEBIAN/conffiles", b"/etc/windlass/windlass.toml\n", 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        let content = workspace.read(&format!("packaging/debian/{script}"))?;
        add(&format!("DEBIAN/{script}"), content.as_bytes(), 0o755)?;
    }
    fs::create_dir_all(out)?;
    let file = out.join(format!("windlass_{version}_{}.deb", architecture.trim()));
    let (from, to) = (tree.path().display().to_string(), file.display().to_string());
    let compression = match compression {
        Compression::None => "-Znone",
        Compression::Xz => "-Zxz",
    };
    workspace.run("dpkg-deb", &["--root-owner-group", compression, "--build", &from, &to])?;
    Ok(file)
}

/// The Debian packages of the libraries that a program needs, as in `Depends`.
fn libraries(workspace: &Workspace, program: &str) -> anyhow::Result<String> {
    let mut packages = BTreeSet::new();
    for line in workspace.output("ldd", &[program])?.lines() {
        let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')) else { continue };
        let path = fs::canonicalize(path)?.display().to_string();
        // Some packages are from before /lib became a link to /usr/lib.
        let before = path.strip_prefix("/usr").unwrap_or(&path);
        let owner = workspace.output("dpkg-query", &["--search", &path]);
        let owner = owner.or_else(|_| workspace.output("dpkg-query", &["--search", before]))?;
        packages.extend(owner.split(':').next().map(str::to_owned));
    }
    Ok(packages.into_iter().collect::<Vec<_>>().join(", "))
}

/// The crates that the program is made of, as CycloneDX.
fn sbom(workspace: &Workspace) -> anyhow::Result<Value> {
    let arguments = ["--locked", "--package", "windlass", "--features", "full", "--edges", "normal"];
    let format = ["--prefix", "none", "--no-dedupe", "--format", "{p}\t{l}"];
    let tree = workspace.output("cargo", &[&["tree"], &arguments[..], &format].concat())?;
    let lines: BTreeSet<&str> = tree.lines().collect();
    let component = |line: &&str| {
        let (package, license) = line.split_once('\t')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some(json!({
            "type": "library", "name": name, "version": version, "purl": format!("pkg:cargo/{name}@{version}"),
            "licenses": [{ "expression": license.replace('/', " OR ") }],
        }))
    };
    let components: Vec<Value> = lines.iter().filter_map(component).collect();
    ensure!(components.len() > 50, "`cargo tree` lists {} crates", components.len());
    Ok(json!({ "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components }))
}

/// Builds the package of this program, installs it in a folder, starts the server as its unit does, and removes the package.
pub(crate) fn check(workspace: &Workspace, program: &Path) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let package = build(workspace, program, dir.path(), Compression::None)?;
    let root = dir.path().join("root");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(folder))?;
    }
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    let dpkg = |arguments: &[&str]| {
        let root = format!("--root={}", root.display());
        // The libraries are installed in the system, and the scripts do nothing where no systemd runs.
        let options = [root.as_str(), "--force-not-root", "--force-depends", "--force-script-chrootless"];
        workspace.output("dpkg", &[&options, arguments].concat())
    };
    dpkg(&["--install", &package.display().to_string()])?;
    let files = dpkg(&["--listfiles", "windlass"])?;
    for path in
        ["/usr/bin/windlass", "/usr/share/man/man1/windlass-server.1.gz", "/etc/windlass/windlass.toml"]
    {
        ensure!(files.lines().any(|file| file == path), "{path} is not in the package:\n{files}");
    }
    start_and_stop(&root)?;
    verify_unit(workspace, &root)?;

    let config = root.join("etc/windlass/windlass.toml");
    dpkg(&["--remove", "windlass"])?;
    ensure!(!root.join("usr/bin/windlass").exists(), "the program is there after it was removed");
    ensure!(config.exists(), "the configuration is gone after the package was removed and not purged");
    dpkg(&["--purge", "windlass"])?;
    ensure!(!config.exists(), "the configuration is there after the package was purged");
    Ok(())
}

/// Starts the installed server with the installed configuration, as systemd would: it must say when it is ready, that it is
/// alive, and that it stops.
fn start_and_stop(root: &Path) -> anyhow::Result<()> {
    let (socket, state) = (root.join("notify"), root.join("state"));
    fs::create_dir_all(&state)?;
    let heard = UnixDatagram::bind(&socket)?;
    heard.set_read_timeout(Some(PATIENCE))?;
    let mut server = Command::new(root.join("usr/bin/windlass"))
        .args(["server", "--config"])
        .arg(root.join("etc/windlass/windlass.toml"))
        // This machine may have a server at the address and on the store of the configuration.
        .args(["--listen", "127.0.0.1:0", "--store", "sqlite:windlass.db"])
        .current_dir(&state)
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "300000")
        .stdout(Stdio::piped())
        .spawn()?;
    let checked = speak(&heard, &mut server);
    // It has ended unless the check failed.
    let _ = server.kill();
    server.wait()?;
    checked
}

fn speak(heard: &UnixDatagram, server: &mut Child) -> anyhow::Result<()> {
    let mut line = String::new();
    BufReader::new(server.stdout.take().context("the server has an output")?).read_line(&mut line)?;
    ensure!(line.starts_with("listening on "), "the server prints {line:?}");
    let expect = |wanted: &str| -> anyhow::Result<()> {
        let mut buffer = [0; 256];
        // Signs of life come in between.
        for _ in 0..1000 {
            let length = heard.recv(&mut buffer).with_context(|| format!("no {wanted}"))?;
            let said = String::from_utf8_lossy(&buffer[..length]);
            if said.lines().any(|line| line == wanted) {
                return Ok(());
            }
        }
        bail!("the service manager was not sent {wanted}")
    };
    expect("READY=1")?;
    expect("WATCHDOG=1")?;
    expect("WATCHDOG=1")?;
    let pid = rustix::process::Pid::from_raw(i32::try_from(server.id())?).context("a process has an id")?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    expect("STOPPING=1")?;
    let status = server.wait()?;
    ensure!(status.success(), "the server ended with {status}");
    Ok(())
}

/// Has systemd read the unit, where it is installed.
fn verify_unit(workspace: &Workspace, root: &Path) -> anyhow::Result<()> {
    let unit = root.join("usr/lib/systemd/system/windlass.service");
    let text = fs::read_to_string(&unit)?;
    let program = root.join("usr/bin/windlass").display().to_string();
    fs::write(&unit, text.replace("/usr/bin/windlass", &program))?;
    if workspace.output("systemd-analyze", &["--version"]).is_err() {
        println!("systemd-analyze is not installed: the unit is not checked");
        return Ok(());
    }
    let arguments = ["verify", "--man=no", "--recursive-errors=no", &unit.display().to_string()];
    let output = workspace.command("systemd-analyze", &arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && !said.contains("windlass"),
        "the unit is not as systemd reads it: {said}"
    );
    Ok(())
}
