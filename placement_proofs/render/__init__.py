"""Rendering: reports, plans and bills as text for people. Nothing here decides anything."""
