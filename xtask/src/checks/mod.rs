//! Checks of the sources and pages: permitted imports of each module, lengths of files, links, reasons, and words.

mod architecture;
mod links;
mod reasons;
mod wording;
