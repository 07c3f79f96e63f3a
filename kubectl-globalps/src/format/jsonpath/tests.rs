use serde_json::{Value, json};

use super::JsonPath;

/// kubectl's output, which `tests/tests/output.rs` compares with kubectl itself. `null`: kubectl fails.
const CASES: &str = include_str!("../cases/jsonpath.json");

fn text(template: &str, value: &Value) -> Result<String, String> {
    template.parse::<JsonPath>()?.text(value)
}

#[test]
fn templates_print_what_kubectl_prints() {
    let cases: Value = serde_json::from_str(CASES).expect("JSON");
    let table = cases["cases"].as_array().expect("a list");
    assert!(table.len() > 100);
    for case in table {
        let template = case[0].as_str().expect("a template");
        let found = text(template, &cases["value"]);
        let expected = case[1].as_str().ok_or(());
        assert_eq!(
            found.as_deref().map_err(|_| ()),
            expected,
            "{template}: {found:?}"
        );
    }
}

#[test]
fn what_is_missing_fails_nothing_and_drops_nothing() {
    let value = json!({
        "nodes": [{"images": []}, {"images": ["a:1"]}],
        "rows": [{"scope": null}, {"scope": "x"}, {}],
        "none": null,
    });
    for (template, expected) in [
        ("{.nodes[*].images[*]}", "a:1"),
        (r#"{.rows[?(@.scope=="x")]}"#, r#"{"scope":"x"}"#),
        (r#"{.rows[?(@.scope!="x")]}"#, ""),
        ("{.nodes[?(@.images[0])].images}", r#"["a:1"]"#),
        ("{.none[0]}{.none[?(@.a)]}{.none.a}", ""),
    ] {
        assert_eq!(
            text(template, &value).as_deref(),
            Ok(expected),
            "{template}"
        );
    }
}

#[test]
fn an_invalid_template_is_named_with_the_place() {
    #[rustfmt::skip]
    let cases = [
        ("{.a", "character 1: `{` without `}` on the same line"),
        ("ü{.a}{.b\n}", "character 6: `{` without `}` on the same line"),
        ("{.a[0}", "character 4: `[` without `]` on the same line"),
        ("{.a[x]}", "character 5: `[x]` is no index, no slice, and no name in single quotes"),
        ("{.a[0, x]}", "character 8: `[x]` is no index, no slice, and no name in single quotes"),
        ("{.a[1:2:3:4]}", "character 5: `[1:2:3:4]` is no index, no slice, and no name in single quotes"),
        ("{.a[0:1:0]}", "character 5: `[0:1:0]` is no index, no slice, and no name in single quotes"),
        ("{....a}", "character 4: `..` follows `..`"),
        ("{..*}", "character 4: unexpected `*`"),
        ("{foo}", "character 2: unexpected `foo`: a field begins with `.`, a text is in quotes"),
        ("{.a[?(@.b==c)]}", "character 12: unexpected `c`: a field begins with `.`, a text is in quotes"),
        ("{.a[?(@.b==)]}", "character 10: a filter compares what is before the operator with what is after it"),
        ("{.a[?(@.b=~1)]}", "character 10: a filter compares with `==`, `!=`, `<`, `<=`, `>` or `>=`"),
        ("{.a[?(@.b==1]}", "character 4: a filter without `)]` on the same line"),
        ("{.a[?(@.b==1) ]}", "character 14: `]` must follow `)`"),
        ("{.a[?(@.b==1 && @.c==2)]}", "character 14: unexpected `&`"),
        ("{'a}", "character 2: a quote that is not closed on the same line"),
        (r#"{"\q"}"#, "character 2: an unknown escape sequence"),
        ("{1.2.3}", "character 2: `1.2.3` is not a number"),
        ("{range .a}{end}{end}", "character 16: `{end}` without `{range}`"),
    ];
    for (template, expected) in cases {
        let found = template.parse::<JsonPath>();
        assert_eq!(found.err().as_deref(), Some(expected), "{template}");
    }
}

#[test]
fn a_template_that_does_not_fit_names_the_reason() {
    let value = json!({"a": [{"b": 1}, {"b": "x"}], "c": true, "d": [{"x": 1, "y": 2}]});
    for (template, expected) in [
        ("{.a[2]}", "index 2 is out of bounds of a list of 2"),
        ("{.a[-3]}", "index -3 is out of bounds of a list of 2"),
        ("{.a[-3:]}", "index -3 is out of bounds of a list of 2"),
        ("{.a[0:3]}", "no slice of a list of 2 is from 0 to 3"),
        ("{.c[0]}", "a boolean is not a list"),
        ("{.c[?(@)]}", "a boolean is not a list"),
        (
            "{.a[?(@.b==1)]}",
            "a filter can't compare a string with a number in this way",
        ),
        (
            "{.a[?(@==1)]}",
            "a filter can't compare an object with a number in this way",
        ),
        (
            "{.d[?(@.*==1)]}",
            "a filter compares one value with another, not 2",
        ),
    ] {
        assert_eq!(
            text(template, &value),
            Err(expected.to_owned()),
            "{template}"
        );
    }
}

#[test]
fn each_path_is_a_list_of_its_own_as_json() {
    let template: JsonPath = "{range .a[*]}{.b}{end}{.none}".parse().expect("a template");
    let text = template.lists(&json!({"a": [{"b": 1}, {"b": {"c": []}}]}));
    let expected = "[\n    1\n]\n[\n    {\n        \"c\": []\n    }\n]\n[]\n";
    assert_eq!(text.as_deref(), Ok(expected));
}
