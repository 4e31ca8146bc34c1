//! What every plugin is held to, as functions that a plugin's tests call.
