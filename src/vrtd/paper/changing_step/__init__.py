"""Figure 4: VRTD against TD with a step that is halved."""
