//! Of the sources and pages: what each module may import, how long a file is, links, and words.

mod architecture;
mod links;
mod wording;
