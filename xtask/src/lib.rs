//! What `make` calls beside the programs themselves: files that are generated from the code, releases, the book and pictures.

pub mod book;
pub mod generate;
pub mod pictures;
pub mod release;
mod run;

#[cfg(test)]
mod checks;
