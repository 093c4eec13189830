//! Arguments of `export`.

use std::net::SocketAddr;

use clap::Args;

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Where to serve: an IP address of this VM and a port. Without a proxy, leave it on the loopback address
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9757")]
    pub listen: SocketAddr,
}
