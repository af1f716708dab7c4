"""Files: tables, folders of images, output folders, HTML pages."""
