//! Results as JUnit XML: a suite per log, a case per expectation that is not met.

use std::fmt::Write;

use super::result::LogResult;

/// The XML of these results.
pub(super) fn text(results: &[LogResult]) -> String {
    let failures: usize = results.iter().map(|result| result.unmet.len()).sum();
    let errors = results.iter().filter(|result| result.failure.is_some()).count();
    let cases: usize = results.iter().map(|result| result.unmet.len().max(1)).sum();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"sluice check-log\" \
         tests=\"{cases}\" failures=\"{failures}\" errors=\"{errors}\">\n"
    );
    results.iter().for_each(|result| xml += &suite(result));
    xml + "</testsuites>\n"
}

fn suite(result: &LogResult) -> String {
    let name = escaped(&result.log);
    let (failures, errors) = (result.unmet.len(), usize::from(result.failure.is_some()));
    let cases = failures.max(1);
    let mut xml = format!(
        "  <testsuite name=\"{name}\" tests=\"{cases}\" failures=\"{failures}\" \
         errors=\"{errors}\">\n"
    );
    let mut case = |title: &str, content: &str| {
        let title = escaped(title);
        // Writing to a string does not fail.
        let _written = match content {
            "" => writeln!(xml, "    <testcase classname=\"{name}\" name=\"{title}\"/>"),
            _ => writeln!(
                xml,
                "    <testcase classname=\"{name}\" name=\"{title}\">{content}</testcase>"
            ),
        };
    };
    for listed in &result.unmet {
        let unmet = &listed.unmet;
        let title = [&unmet.channels.join(", "), &unmet.rule].map(String::as_str).join(" ");
        let failure = format!("<failure message=\"{}\"/>", escaped(&unmet.to_string()));
        case(title.trim_start(), &failure);
    }
    match &result.failure {
        Some(reason) => {
            case("read the log", &format!("<error message=\"{}\"/>", escaped(reason)));
        }
        None if result.unmet.is_empty() => case("all expectations are met", ""),
        None => {}
    }
    xml + "  </testsuite>\n"
}

/// Text for an attribute. Characters that XML cannot hold are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(' '),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::UnmetExpectation;
    use sluice_pipeline::report::UnmetReport;

    #[test]
    fn each_log_is_a_suite_and_each_failure_a_case() {
        let unmet = UnmetExpectation {
            channels: vec!["<A&\u{1}>".into()],
            rule: "rate".into(),
            ..UnmetExpectation::default()
        };
        let listed = UnmetReport { node: "expect".into(), input: None, unmet };
        let bad = LogResult { log: "b\".lcm".into(), unmet: vec![listed], ..LogResult::default() };
        let good = LogResult { log: "good.lcm".into(), ..LogResult::default() };
        let missing = LogResult::failed("missing.lcm".into(), "no such file".into());
        let xml = text(&[good, bad, missing]);
        assert!(xml.contains("tests=\"3\" failures=\"1\" errors=\"1\""), "{xml}");
        assert!(xml.contains("name=\"&lt;A&amp;\u{fffd}&gt; rate\"><failure message=\""), "{xml}");
        assert!(xml.contains("classname=\"b&quot;.lcm\""), "{xml}");
        assert!(
            xml.contains("classname=\"good.lcm\" name=\"all expectations are met\"/>"),
            "{xml}"
        );
        assert!(xml.contains("<error message=\"no such file\"/>"), "{xml}");
    }
}
