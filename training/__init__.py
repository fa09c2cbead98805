"""How the embedded tiny Wan models were made: data, training, export and the checker that judges them."""
