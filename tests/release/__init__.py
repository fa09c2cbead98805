"""What `./dev dist` built, tried as strangers would."""
