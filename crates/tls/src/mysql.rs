//! The client of MySQL: it reads certificates itself, and brings CA certificates of its own along.

use mysql_async::{ClientIdentity, Opts, OptsBuilder, SslOpts};

use crate::{ClientFiles, TlsError, client_config, files};

/// Why a URL of MySQL or MariaDB cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// It is invalid. The text has no part of user or password.
    #[error("{0}")]
    Invalid(String),
    /// A file for TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Reads `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, or the same with `mariadb://`. With `?require_ssl=true` the connection is by
/// TLS, and a CA that the system trusts must have issued the certificate of the server; with `?cacert=FILE` one of this
/// file. `cert=FILE&key=FILE` is what the client shows. The files are checked here, and read with the first connection.
///
/// # Errors
/// When the URL is invalid, names no database, or a file cannot be used.
pub fn mysql_options(url: &str) -> Result<Opts, UrlError> {
    let url = match url.strip_prefix("mariadb://") {
        Some(rest) => format!("mysql://{rest}"),
        None => url.to_owned(),
    };
    let (base, query) = url.split_once('?').unwrap_or((&url, ""));
    if query.contains('@') {
        // Otherwise a part of the password would be a parameter, and be shown.
        return Err(UrlError::Invalid(
            "write / ? # and @ in user and password as %2F %3F %23 and %40".to_owned(),
        ));
    }
    let (files, mut others) = ClientFiles::split(query, ClientFiles::NAMES).map_err(UrlError::Invalid)?;
    if !files.is_empty() && !others.iter().any(|other| other.starts_with("require_ssl=")) {
        others.push("require_ssl=true");
    }
    let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
    // The error says what is wrong and has nothing of user and password in it.
    let options = Opts::from_url(&url).map_err(|error| UrlError::Invalid(error.to_string()))?;
    if options.db_name().is_none_or(str::is_empty) {
        return Err(UrlError::Invalid("it names no database: end it with /DATABASE".to_owned()));
    }
    let Some(tls) = options.ssl_opts().cloned() else {
        if files.is_empty() {
            return Ok(options);
        }
        return Err(UrlError::Invalid(
            "cacert, cert and key are for TLS, and it has require_ssl=false".to_owned(),
        ));
    };
    let tls = with_files(tls, &files)?;
    Ok(OptsBuilder::from_opts(options).ssl_opts(tls).into())
}

fn with_files(tls: SslOpts, files: &ClientFiles) -> Result<SslOpts, TlsError> {
    // The library would report a file that it cannot use only on connecting, and without its name.
    client_config(files)?;
    let roots = match &files.authorities {
        Some(path) => vec![path.clone().into()],
        None => files::certificates_of_system()
            .into_iter()
            .map(|certificate| certificate.to_vec().into())
            .collect(),
    };
    let identity = files.identity.as_ref().map(|identity| {
        ClientIdentity::new(identity.certificate.clone().into(), identity.key.clone().into())
    });
    Ok(tls.with_disable_built_in_roots(true).with_root_certs(roots).with_client_identity(identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_cannot_be_meant_are_refused_without_their_password() {
        for (url, why) in [
            ("mysql://u:s3cret@h", "names no database"),
            ("mysql://u:s3cret@h/d?cacert=", "cacert names no file"),
            ("mysql://u:s3cret@h/d?cert=/c", "need each other"),
            ("mysql://u:s3cret@h/d?cacert=/no/such.pem", "/no/such.pem"),
            ("mysql://u:s3cret@h/d?require_ssl=false&cacert=/c", "require_ssl=false"),
            ("mysql://u:s3?cret@h/d", "as %2F %3F"),
            ("mysql://u:s3cret@h/d?x=1", "x"),
        ] {
            let error = mysql_options(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("s3"), "{url}: {error}");
        }
    }

    #[test]
    fn without_tls_nothing_is_read() {
        let options = mysql_options("mariadb://u@h:7/d").unwrap();
        assert!(options.ssl_opts().is_none());
        assert_eq!((options.ip_or_hostname(), options.tcp_port(), options.db_name()), ("h", 7, Some("d")));
    }
}
