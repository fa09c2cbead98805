"""The roles on a Ray cluster: a gang is a Serve replica that supervises rank actors in its placement group, the gateway a
Serve deployment, the manager a detached actor. The only room that imports Ray; whoever needs none of it never imports it."""
