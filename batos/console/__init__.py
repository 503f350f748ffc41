"""The web console: the image, its missions, memory and models in a browser on this machine: pages of the daemon's HTTP server
(`batos.doors.server`).

It has no rights of its own: `api_client` sends its questions to the dispatcher as requests of the wire. `access` and `login` decide who may
ask. `pages` and its neighbours draw the pages, and `live_events` updates them. `server` loads these modules with the first page.
`connections` bounds who is served.
"""
