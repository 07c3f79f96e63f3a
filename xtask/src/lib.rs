//! The tasks that `make` runs besides the programs themselves: files that are generated from the code, releases, the
//! book and pictures.

pub mod book;
pub mod coverage;
pub mod deny;
pub mod generate;
pub mod mutants;
pub mod pictures;
pub mod previous;
pub mod release;
mod run;
pub mod tools;

#[cfg(test)]
mod checks;
