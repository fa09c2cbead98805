"""How engine servers are started: vLLM, llama.cpp, or a command of one's own; and gangs, which are started alike."""
