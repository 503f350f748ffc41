"""The web console: the image, its missions, memory and models in a browser on this machine. Served by the daemon when it is asked to.

It has no rights of its own: `asking` puts its questions to the desk as requests of the wire. `access` and `guard` say who may ask,
`pages` and its neighbours what there is to see, `feed` and `server` how it moves and is served.
"""
