//! Values of `-o`: the same for every table, for every other text, and for every object.

use clap::ValueEnum;

/// Of a command that prints a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    Table,
    /// With more columns
    Wide,
    Json,
    Yaml,
    /// Names of objects, as `kubectl` takes them
    Name,
}

/// Of a command that prints other text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextFormat {
    Text,
    Json,
    Yaml,
}

/// Of a command that prints an object of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectFormat {
    Yaml,
    Json,
    Name,
}

/// What all of them ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    Json,
    Yaml,
    Name,
}

impl TableFormat {
    pub(crate) fn is_table(self) -> bool {
        Form::from(self) == Form::Text
    }
}

impl From<TableFormat> for Form {
    fn from(format: TableFormat) -> Self {
        match format {
            TableFormat::Table | TableFormat::Wide => Self::Text,
            TableFormat::Json => Self::Json,
            TableFormat::Yaml => Self::Yaml,
            TableFormat::Name => Self::Name,
        }
    }
}

impl From<TextFormat> for Form {
    fn from(format: TextFormat) -> Self {
        match format {
            TextFormat::Text => Self::Text,
            TextFormat::Json => Self::Json,
            TextFormat::Yaml => Self::Yaml,
        }
    }
}

impl From<Option<ObjectFormat>> for Form {
    fn from(format: Option<ObjectFormat>) -> Self {
        match format {
            None => Self::Text,
            Some(ObjectFormat::Yaml) => Self::Yaml,
            Some(ObjectFormat::Json) => Self::Json,
            Some(ObjectFormat::Name) => Self::Name,
        }
    }
}
