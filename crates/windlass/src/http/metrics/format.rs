//! The two text formats of metrics: OpenMetrics, and the older one of Prometheus, which more tools read.

use std::fmt;

use axum::{
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use prometheus_client::{encoding::text, registry::Registry};

use crate::http::answer::problem::Refused;

const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PROMETHEUS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// The metrics of these registries, in the format that the client accepts.
pub(super) fn answer(registries: &[&Registry], headers: &HeaderMap) -> Result<Response, Refused> {
    let mut out = String::new();
    let mut written = Ok(());
    for registry in registries {
        written = written.and_then(|()| text::encode_registry(&mut out, registry));
    }
    let written = written.and_then(|()| text::encode_eof(&mut out));
    written.map_err(|fmt::Error| Refused::fault("the metrics could not be written"))?;
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    Ok(match accepted.any(|accepted| accepted.contains(OPEN_METRICS)) {
        true => ([(header::CONTENT_TYPE, OPEN_METRICS_TYPE)], out).into_response(),
        false => ([(header::CONTENT_TYPE, PROMETHEUS_TYPE)], to_prometheus(&out)).into_response(),
    })
}

/// The same in the format of Prometheus: counters have their suffix in the descriptions as well, and there are neither infos nor
/// units nor an end.
fn to_prometheus(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    // The help of a metric comes before its type, which says whether it is a counter.
    let mut help: Option<(&str, &str)> = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                out.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_suffix_in_the_format_of_prometheus() {
        let open_metrics = "# HELP a_b Some thing.\n# TYPE a_b counter\na_b_total{x=\"#\"} 1\n# HELP t_seconds Time.\n\
                            # TYPE t_seconds histogram\n# UNIT t_seconds seconds\nt_seconds_count 2\n# HELP v V.\n# TYPE v info\nv_info{x=\"1\"} 1\n# EOF\n";
        let prometheus = "# HELP a_b_total Some thing.\n# TYPE a_b_total counter\na_b_total{x=\"#\"} 1\n\
                          # HELP t_seconds Time.\n# TYPE t_seconds histogram\nt_seconds_count 2\n# HELP v_info V.\n# TYPE v_info gauge\nv_info{x=\"1\"} 1\n";
        assert_eq!(to_prometheus(open_metrics), prometheus);
    }
}
