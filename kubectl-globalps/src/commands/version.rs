//! `version`: of the plugin, and of the controller's image if a cluster can be reached.

use serde_json::json;

use crate::cli::{Connection, Version};
use crate::cluster::{Cluster, Program, deployment};
use crate::error::{Exit, Result};
use crate::terminal::printer::Printer;

pub(super) async fn run(args: &Version, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let client = env!("CARGO_PKG_VERSION");
    let controller = if args.client {
        None
    } else {
        // No cluster is not an error: the plugin's own version is known anyway.
        controller_image(flags, printer)
            .await
            .unwrap_or_else(|failure| {
                printer.warning(failure.message);
                None
            })
    };
    let of_controller = controller.as_ref().map(|image| json!({ "image": image }));
    let version = json!({ "client": { "version": client }, "controller": of_controller });
    printer.print(&args.output, ("the version", &version), [], || {
        printer.data(&format!("client: {client}"));
        if !args.client {
            let image = controller
                .as_deref()
                .unwrap_or("not installed, or not visible");
            printer.data(&format!("controller: {image}"));
        }
    })?;
    Ok(Exit::Done)
}

async fn controller_image(flags: &Connection, printer: &Printer) -> Result<Option<String>> {
    let cluster = Cluster::connect(flags, printer)?;
    let deployment = deployment(&cluster, Program::Controller).await?;
    Ok(deployment
        .and_then(|deployment| deployment.spec?.template.spec)
        .and_then(|pod| pod.containers.into_iter().next()?.image))
}
