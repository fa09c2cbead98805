"""Who people are and how they come in: persons, invites, logins of an issuer, guests; and the account, where each sees what is
hers."""
