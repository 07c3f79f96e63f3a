//! Of the sources and pages: what each module may import, how long a file is, links, reasons, and words.

mod architecture;
mod links;
mod reasons;
mod wording;
