//! Delivery to operators: plans the copies of catalogs' pull secrets, and which service accounts refer to them. Pure.

pub(crate) mod input;
pub(crate) mod olm;
pub(crate) mod plan;
pub(crate) mod summary;
pub(crate) mod views;
