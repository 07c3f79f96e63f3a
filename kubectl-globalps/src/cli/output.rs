//! Values of `-o`, shared by all tables, texts and objects.

use std::ffi::OsStr;
use std::fs;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};

use crate::format::go_template::GoTemplate;
use crate::format::jsonpath::JsonPath;

/// The format that `-o` selects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// Text for users: a table or other text.
    Text,
    /// Text with more columns.
    Wide,
    Json,
    Yaml,
    Kyaml,
    /// Names of objects in the form that `kubectl` accepts.
    Name,
    JsonPath(JsonPath),
    /// The result of each path as a list.
    JsonPathAsJson(JsonPath),
    GoTemplate(GoTemplate),
}

impl Form {
    /// Whether the format is text for users rather than data.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::Text | Self::Wide)
    }
}

/// The formats that a command supports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Formats {
    /// Formats of a command that prints a table.
    Table,
    /// Formats of a command that prints other text.
    Text,
    /// Formats of a command that prints an object of the cluster.
    Object,
}

const JSON: (&str, &str, Form) = ("json", "", Form::Json);
const YAML: (&str, &str, Form) = ("yaml", "", Form::Yaml);
const KYAML: (&str, &str, Form) = (
    "kyaml",
    "YAML with braces, without ambiguities",
    Form::Kyaml,
);
const NAME: (&str, &str, Form) = (
    "name",
    "Names of objects, as `kubectl` takes them",
    Form::Name,
);
const TEXT: (&str, &str, Form) = ("text", "", Form::Text);
const TABLE: (&str, &str, Form) = ("table", "", Form::Text);
const WIDE: (&str, &str, Form) = ("wide", "With more columns", Form::Wide);

const TEMPLATES: [(&str, &str); 2] = [
    ("jsonpath=...", "A JSONPath template"),
    ("go-template=...", "A Go template, which kubectl executes"),
];

/// All values with a template. The help lists only the formats above.
const TEMPLATE_FORMS: [&str; 7] = [
    "jsonpath",
    "jsonpath-file",
    "jsonpath-as-json",
    "go-template",
    "go-template-file",
    "template",
    "templatefile",
];

/// Parses `FORM=TEMPLATE` or `FORM=FILE`.
fn template(text: &str) -> Result<Form, String> {
    let (name, given) = text.split_once('=').unwrap_or_default();
    if given.is_empty() {
        return Err("the template is empty".to_owned());
    }
    let template = if name.ends_with("file") {
        fs::read_to_string(given).map_err(|error| format!("the file could not be read: {error}"))?
    } else {
        given.to_owned()
    };
    Ok(match name {
        "jsonpath" | "jsonpath-file" => Form::JsonPath(template.parse()?),
        "jsonpath-as-json" => Form::JsonPathAsJson(template.parse()?),
        _ => Form::GoTemplate(GoTemplate(template)),
    })
}

impl Formats {
    fn forms(self) -> &'static [(&'static str, &'static str, Form)] {
        match self {
            Self::Table => &[TABLE, WIDE, JSON, YAML, KYAML, NAME],
            Self::Text => &[TEXT, JSON, YAML, KYAML],
            Self::Object => &[YAML, JSON, KYAML, NAME],
        }
    }

    fn possible(self) -> impl Iterator<Item = PossibleValue> {
        let forms = self.forms().iter().map(|(name, help, _)| (*name, *help));
        forms.chain(TEMPLATES).map(|(name, help)| {
            let value = PossibleValue::new(name);
            if help.is_empty() {
                value
            } else {
                value.help(help)
            }
        })
    }
}

impl TypedValueParser for Formats {
    type Value = Form;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Form, Error> {
        let mut forms = self.forms().iter();
        if let Some((.., form)) = forms.find(|(name, ..)| *name == value) {
            return Ok(form.clone());
        }
        let text = value.to_str().unwrap_or_default();
        if text
            .split_once('=')
            .is_some_and(|(name, _)| TEMPLATE_FORMS.contains(&name))
        {
            let template = StringValueParser::new().try_map(|text| template(&text));
            return template.parse_ref(cmd, arg, value);
        }
        // The parser of fixed values rejects everything else.
        let known = PossibleValuesParser::new(self.possible());
        known.map(|_| Form::Text).parse_ref(cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.possible()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_of_the_language_that_the_form_names() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "{.a}\n").expect("a file");
        let path = file.path().to_str().expect("a path");
        let json_path = |text: &str| text.parse::<JsonPath>().expect("a template");
        let go = |text: &str| Form::GoTemplate(GoTemplate(text.to_owned()));
        for (text, expected) in [
            ("jsonpath={.a}", Form::JsonPath(json_path("{.a}"))),
            ("jsonpath=a=b", Form::JsonPath(json_path("a=b"))),
            (
                "jsonpath-as-json={.a}",
                Form::JsonPathAsJson(json_path("{.a}")),
            ),
            (
                &format!("jsonpath-file={path}"),
                Form::JsonPath(json_path("{.a}\n")),
            ),
            ("go-template={{.a}}", go("{{.a}}")),
            ("template={{.a}}", go("{{.a}}")),
            (&format!("go-template-file={path}"), go("{.a}\n")),
            (&format!("templatefile={path}"), go("{.a}\n")),
        ] {
            let form = Formats::Table.parse_ref(&Command::new("c"), None, OsStr::new(text));
            assert_eq!(form.ok(), Some(expected), "{text}");
        }
    }
}
