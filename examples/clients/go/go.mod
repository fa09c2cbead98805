module turnout-client

go 1.21
