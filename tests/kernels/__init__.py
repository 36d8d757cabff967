"""The album: data, one small kernel for each way to fail; installed as `greenfast.album`."""
