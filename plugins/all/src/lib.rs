//! Names every plugin family, so that the linker keeps them; nothing else.

#![warn(unused_crate_dependencies)]

use sluice_archive as _;
use sluice_demo as _;
use sluice_dgc as _;
use sluice_exec as _;
use sluice_files as _;
use sluice_foxglove as _;
use sluice_ice as _;
use sluice_json as _;
use sluice_las as _;
use sluice_lcm as _;
use sluice_lcm_live as _;
use sluice_lerobot as _;
use sluice_mcap as _;
use sluice_orca as _;
use sluice_parquet as _;
use sluice_protobuf as _;
use sluice_records as _;
use sluice_report as _;
use sluice_ros as _;
use sluice_stages as _;
use sluice_text as _;
use sluice_vel as _;
