"""An agent: acting, replay, learning."""
