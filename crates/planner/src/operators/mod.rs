//! Delivery to operators: plans the copies of catalogs' pull secrets, and which service accounts refer to them. Pure.

pub mod input;
pub mod olm;
pub mod plan;
pub mod report;
pub mod views;
