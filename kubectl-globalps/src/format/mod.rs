//! kubectl's output formats: `JSONPath`, Go templates and KYAML.

pub(crate) mod go_template;
pub(crate) mod jsonpath;
pub(crate) mod kyaml;
pub(crate) mod numbers;
