//! Formats of the answer to `/metrics`.
//!
//! OpenMetrics describes a counter under its name without `_total`, the text format of Prometheus
//! under the name of its samples. A reader of one that gets the other finds no description of any
//! counter, so each gets its own. Lines that only OpenMetrics has (`# UNIT`, `# EOF`) are comments
//! in the text format.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// Format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exposition {
    /// OpenMetrics text, version 1.0.0.
    OpenMetrics,
    /// Text format of Prometheus, version 0.0.4.
    Text,
}

impl Exposition {
    /// Returns the format that a client reads: OpenMetrics if its header `Accept` names it, as that
    /// of Prometheus does.
    pub(crate) fn accepted(headers: &HeaderMap) -> Exposition {
        let accepts = headers.get_all(ACCEPT).iter();
        let mut accepts = accepts.filter_map(|value| value.to_str().ok());
        if accepts.any(|value| value.contains("application/openmetrics-text")) {
            Exposition::OpenMetrics
        } else {
            Exposition::Text
        }
    }

    /// Returns the content type of the answer.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns metrics, written as OpenMetrics, in this format.
    pub(crate) fn convert(self, open_metrics: String) -> String {
        match self {
            Exposition::OpenMetrics => open_metrics,
            Exposition::Text => as_text(&open_metrics),
        }
    }
}

/// Returns OpenMetrics text in the text format of Prometheus.
fn as_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // The type of a metric stands behind its help text.
    let mut help: Option<(&str, &str)> = None;
    let mut push = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    for line in open_metrics.lines() {
        let described = line.strip_prefix("# HELP ").map(|it| (true, it));
        let described = described.or(line.strip_prefix("# TYPE ").map(|it| (false, it)));
        let words = described.and_then(|(is_help, it)| Some((is_help, it.split_once(' ')?)));
        match words {
            Some((true, name_and_help)) => help = Some(name_and_help),
            Some((false, (name, kind))) => {
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some((_, words)) = help.take_if(|(of, _)| *of == name) {
                    push(&format!("# HELP {name}{suffix} {words}"));
                }
                push(&format!("# TYPE {name}{suffix} {kind}"));
            }
            None => push(line),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_under_the_names_of_their_samples() {
        let open_metrics = "# HELP a_requests Requests # of all.\n# TYPE a_requests counter\n\
                            a_requests_total{vm=\"# TYPE x counter\"} 3\n\
                            # HELP a_age_seconds Age.\n# TYPE a_age_seconds gauge\n\
                            # UNIT a_age_seconds seconds\na_age_seconds 1.5\n# EOF\n";
        let text = "# HELP a_requests_total Requests # of all.\n# TYPE a_requests_total counter\n\
                    a_requests_total{vm=\"# TYPE x counter\"} 3\n\
                    # HELP a_age_seconds Age.\n# TYPE a_age_seconds gauge\n\
                    # UNIT a_age_seconds seconds\na_age_seconds 1.5\n# EOF\n";
        assert_eq!(Exposition::Text.convert(open_metrics.to_owned()), text);
        let same = Exposition::OpenMetrics.convert(open_metrics.to_owned());
        assert_eq!(same, open_metrics);
    }

    #[test]
    fn a_client_gets_the_format_that_it_reads() {
        let accepting = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, value.parse().expect("a header"));
            Exposition::accepted(&headers)
        };
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.5";
        assert_eq!(accepting(prometheus), Exposition::OpenMetrics);
        assert_eq!(accepting("*/*"), Exposition::Text);
        assert_eq!(Exposition::accepted(&HeaderMap::new()), Exposition::Text);
    }
}
