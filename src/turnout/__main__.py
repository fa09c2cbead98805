from turnout.cli.main import app

if __name__ == "__main__":
    app(prog_name="turnout")
